"""Your own molecules: a CSV file with a column of SMILES and label columns, gaps allowed.

Features are graphs as the Open Graph Benchmark defines them, or Morgan fingerprints, with descriptors or
without; they are computed once and cached under the root by the file's checksum. Molecules that RDKit cannot
read keep their row, but belong to no part of the split. Split by Bemis-Murcko scaffolds (80 / 10 / 10,
nothing random), at random by the seed, also stratified by labels, or by a column of the file that says train,
valid or test. Rows of the same molecule, by canonical SMILES, are in the same part, unless such a column says
otherwise.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

from mmb.data.dataset import Dataset, Progress
from mmb.data.files import cache
from mmb.data.files.archives import checksum_of
from mmb.data.files.table_formats import read_table, read_training_table
from mmb.data.inputs.featurize import Features, Featurizer
from mmb.data.inputs.label_columns import check_columns, choose_labels, find_columns, name_list, read_split
from mmb.data.inputs.molecule_cache import build_cache, open_dataset


def prepare(
    root: Path,
    *,
    path: str | Path,
    smiles: str = "smiles",
    labels: str | Sequence[str] | None = None,
    positive: str | Sequence[str] | None = None,
    drop: str | Sequence[str] = (),
    features: Features = "graph",
    radius: int = 2,
    bits: int = 2048,
    workers: int = 2,
    progress: Progress | None = None,
) -> Path:
    """Compute the features of every molecule once; options are those of `load`, and how many processes."""
    return _prepare(root, path, smiles, labels, positive, drop, features, radius, bits, workers, progress)[0]


def _prepare(
    root: Path,
    path: str | Path,
    smiles: str,
    labels: str | Sequence[str] | None,
    positive: str | Sequence[str] | None,
    drop: str | Sequence[str],
    features: Features,
    radius: int,
    bits: int,
    workers: int = 2,
    progress: Progress | None = None,
) -> tuple[Path, dict[str, str]]:
    """The folder of the cache, and the columns that are no labels, with the reason."""
    path = Path(path)
    featurizer = Featurizer(features, radius, bits, strict=True, scaffolds=True)
    table = read_training_table(path)
    dropped = find_columns(table, drop)
    check_columns(table, smiles=[smiles], drop=dropped)
    tasks, left_out = choose_labels(table, labels, [smiles, *dropped], positive)
    check_columns(table, labels=tasks)
    what = [checksum_of(path), smiles, tasks, asdict(featurizer), "canonical"]
    key = json.dumps(what if positive is None else [*what, name_list(positive)])
    folder = root / "molecules" / hashlib.sha256(key.encode()).hexdigest()[:16]
    if not cache.is_intact(folder):
        build_cache(folder, table, smiles, tasks, featurizer, workers, progress, positive)
    return folder, left_out


def load(
    root: Path,
    *,
    path: str | Path,
    smiles: str = "smiles",
    labels: str | Sequence[str] | None = None,
    positive: str | Sequence[str] | None = None,
    drop: str | Sequence[str] = (),
    split: Literal["scaffold", "random", "stratified"] = "scaffold",
    folds: int = 0,
    fold: int = 0,
    split_column: str | None = None,
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
        labels: Names of the label columns, or patterns such as `assay_*`; by default all columns but
            `smiles`, `drop`, `split_column` and those that mostly hold something else.
        positive: Cells that mean positive; all others that are not blank are negative. By default labels
            are 1 and 0, yes and no, and the like.
        drop: Columns to leave out, such as identifiers; names or patterns.
        split: `"scaffold"`, `"random"`, or `"stratified"`: positives of every task in every part, where there
            are enough. Not used if there is a `split_column`.
        folds: Divide the molecules into so many folds, at least 3; 0 for none. No scaffold is divided if the
            split is by scaffolds.
        fold: Which of the folds tests; the next one is for validation. All others train.
        split_column: Column that says train, valid or test for each row.
        fractions: Of train, valid and test.
        seed: Seed of the random split.
        features: `"graph"`, `"fingerprint"` (Morgan), or `"descriptors"`: numbers of RDKit besides it.
        radius: Of the fingerprint, in bonds.
        bits: Length of the fingerprint.
    """
    aside = [*name_list(drop), *([split_column] if split_column else [])]
    folder, left_out = _prepare(root, path, smiles, labels, positive, aside, features, radius, bits)
    if split_column is None:
        dataset = open_dataset(
            "molecules", folder, split, fractions, seed, folds=folds, fold=fold, together=True
        )
        return replace(dataset, details={**dataset.details, "left_out": left_out})
    if folds or split != "scaffold":
        raise ValueError("split_column says all there is to say: leave out split and folds")
    parts = read_split(read_table(Path(path)), split_column, fractions, seed)
    dataset = open_dataset("molecules", folder, parts)
    return replace(dataset, details={**dataset.details, "left_out": left_out})
