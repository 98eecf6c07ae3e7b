"""Your own molecules: a CSV file with a column of SMILES and label columns, gaps allowed.

Features are graphs as the Open Graph Benchmark defines them, or Morgan fingerprints, with descriptors or
without; they are computed once and cached under the root by the file's checksum. Molecules that RDKit cannot
read keep their row, but belong to no part of the split. Split by Bemis-Murcko scaffolds (80 / 10 / 10,
nothing random), at random by the seed, also stratified by labels or with groups kept whole; into folds; in
order of time; by a column that says train, valid or test; or by a file for each part. Rows of the same
molecule, by canonical SMILES, are in the same part, unless such a column or files say otherwise, of which
`mmb data describe` warns.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import accumulate
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from mmb._names import name_list
from mmb.data.dataset import SPLITS, Dataset, Progress
from mmb.data.errors import TableError
from mmb.data.files import cache
from mmb.data.files.archives import checksum_of
from mmb.data.files.table import TextTable, joined
from mmb.data.files.table_formats import read_training_table
from mmb.data.inputs.column_roles import check_columns, choose_labels, find_columns, find_owners
from mmb.data.inputs.featurize import Features, Featurizer
from mmb.data.inputs.molecule_cache import build_cache, open_dataset, usable_rows
from mmb.data.inputs.table_split import TableSplit, own_parts


def prepare(
    root: Path,
    *,
    path: str | Path,
    smiles: str = "smiles",
    labels: str | Sequence[str] | None = None,
    positive: str | Sequence[str] | None = None,
    drop: str | Sequence[str] = (),
    split_column: str | None = None,
    group: str | None = None,
    time: str | None = None,
    valid_path: str | Path | None = None,
    test_path: str | Path | None = None,
    features: Features = "graph",
    radius: int = 2,
    bits: int = 2048,
    workers: int = 2,
    progress: Progress | None = None,
) -> Path:
    """Compute the features of every molecule once; options are those of `load`, and how many processes."""
    paths = [Path(file) for file in (path, valid_path, test_path) if file is not None]
    how = TableSplit(split_column=split_column, group=group, time=time)
    featurizer = Featurizer(features, radius, bits, strict=True, scaffolds=True)
    return _prepare(root, paths, smiles, labels, positive, drop, how, featurizer, workers, progress).folder


class _Prepared(NamedTuple):
    folder: Path  # of the cache
    table: TextTable  # all files, one below the other
    sizes: list[int]  # rows of each file
    left_out: dict[str, str]  # columns that are not labels, with the reason
    owners: dict[str, int]  # those of them that may say whom a row belongs to


def _prepare(
    root: Path,
    paths: Sequence[Path],
    smiles: str,
    labels: str | Sequence[str] | None,
    positive: str | Sequence[str] | None,
    drop: str | Sequence[str],
    how: TableSplit,
    featurizer: Featurizer,
    workers: int = 2,
    progress: Progress | None = None,
) -> _Prepared:
    tables = [read_training_table(path) for path in paths]
    head, dividing = tables[0], how.columns.values()
    dropped = find_columns(head, drop)
    check_columns(head, smiles=[smiles], drop=dropped, **{o: [name] for o, name in how.columns.items()})
    tasks, left_out = choose_labels(head, labels, [smiles, *dropped, *dividing], positive)
    check_columns(head, labels=tasks)
    table = joined(tables, [smiles, *tasks, *dividing])
    sums = [checksum_of(path) for path in paths]
    what = [sums if len(sums) > 1 else sums[0], smiles, tasks, asdict(featurizer), "canonical"]
    key = json.dumps(what if positive is None else [*what, name_list(positive)])
    folder = root / "molecules" / hashlib.sha256(key.encode()).hexdigest()[:16]
    if not cache.is_intact(folder):
        build_cache(folder, table, smiles, tasks, featurizer, workers, progress, positive)
    return _Prepared(folder, table, [len(one) for one in tables], left_out, find_owners(head, left_out))


def load(
    root: Path,
    *,
    path: str | Path,
    smiles: str = "smiles",
    labels: str | Sequence[str] | None = None,
    positive: str | Sequence[str] | None = None,
    drop: str | Sequence[str] = (),
    split: Literal["scaffold", "random", "stratified"] = "scaffold",
    split_column: str | None = None,
    group: str | None = None,
    time: str | None = None,
    folds: int = 0,
    fold: int = 0,
    valid_path: str | Path | None = None,
    test_path: str | Path | None = None,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    features: Features = "graph",
    radius: int = 2,
    bits: int = 2048,
) -> Dataset:
    """Load molecules, preparing them if needed; `details["unusable_rows"]` are those that RDKit refused.

    Args:
        root: The cache is in `root/molecules`.
        path: The file: CSV with a header line, UTF-8 (tab-separated if its name ends in `.tsv`).
        smiles: Name of the column with SMILES.
        labels: Names of the label columns, or patterns such as `assay_*`; by default all columns that are
            not used otherwise, and do not mostly hold something else.
        positive: Cells that mean positive; all others that are not blank are negative. By default labels
            are 1 and 0, yes and no, and the like.
        drop: Columns to leave out, such as identifiers; names or patterns.
        split: `"scaffold"`, `"random"`, or `"stratified"`: positives of every task in every part, where there
            are enough. A group or a time takes the place of scaffolds.
        split_column: Column that says train, valid or test for each row.
        group: Column that says which rows belong together, such as a series: no group is divided.
        time: Column of numbers or dates: the earliest rows train, the latest test. A molecule counts as its
            latest row.
        folds: Divide the molecules into so many folds, at least 3; 0 for none. No scaffold is divided if the
            split is by scaffolds.
        fold: Which of the folds tests; the next one is for validation. All others train.
        valid_path: A file of its own for the validation rows.
        test_path: A file of its own for the test rows.
        fractions: Of train, valid and test. Parts with a file of their own count as nothing.
        seed: Seed of the random split.
        features: `"graph"`, `"fingerprint"` (Morgan), or `"descriptors"`: numbers of RDKit besides it.
        radius: Of the fingerprint, in bonds.
        bits: Length of the fingerprint.
    """
    paths = [Path(file) for file in (path, valid_path, test_path) if file is not None]
    own = own_parts(valid_path, test_path)
    how = TableSplit(fractions, seed, split, split_column, group, time, folds, fold, own)
    featurizer = Featurizer(features, radius, bits, strict=True, scaffolds=True)
    prepared = _prepare(root, paths, smiles, labels, positive, drop, how, featurizer)
    folder, table, sizes, left_out, owners = prepared
    tensors, facts = cache.read(folder)
    usable = usable_rows("molecules", tensors, facts)
    canonical, scaffolds = (tensors[kind][usable].long() for kind in ("canonical", "scaffold"))
    sizes = _usable_sizes(paths, sizes, tensors["usable"])
    # shares are those of molecules that can be used
    places = how.divide(table.take(usable), tensors["labels"][usable], sizes, canonical, scaffolds)
    dataset = open_dataset("molecules", folder, {part: usable[rows] for part, rows in places.items()})
    facts = how.facts(table)
    if split_column or own:
        facts["repeated_rows"] = _repeated(dataset.split, tensors["canonical"])
    return replace(
        dataset, details={**dataset.details, **facts, "seed": seed, "left_out": left_out, "owners": owners}
    )


def _usable_sizes(paths: Sequence[Path], sizes: Sequence[int], usable: Tensor) -> list[int]:
    """How many rows of each file RDKit could read, at least one."""
    counts = [int(usable[end - size : end].sum()) for size, end in zip(sizes, accumulate(sizes), strict=True)]
    for path, count in zip(paths, counts, strict=True):
        if not count:
            raise TableError(
                path, "RDKit cannot read any of its SMILES", "correct them, or leave the file out"
            )
    return counts


def _repeated(parts: Mapping[str, Tensor], molecules: Tensor) -> dict[str, list[int]]:
    """Rows of valid and test whose molecules train, too."""
    seen = molecules[parts["train"]]
    return {part: parts[part][torch.isin(molecules[parts[part]], seen)].tolist() for part in SPLITS[1:]}
