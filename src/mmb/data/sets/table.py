"""Your own table, of any size: feature columns and label columns, gaps allowed in both.

CSV or TSV (separators are found, `.gz` and `.zst` are expanded), Parquet, Arrow, or a folder of such files.
Features: numbers are standardized and gaps filled with the median, and so are columns of many dates; other
columns are one-hot, very many names hashed; all learned from the training rows and remembered in the encoder,
so that new files are encoded identically. Labels: 1 / 0 (also true / false, yes / no), blank if not known, or
-1 in a column that has zeros. Split at random by the seed, also stratified by labels or with groups kept
whole; into folds; in order of time; by a column that says train, valid or test; or by a file for each part.

A text file of up to 16 MB is read as it is. Other tables are prepared once, in `root/table`, as columns on
disk, of which training reads only the rows it draws.
"""

import hashlib
import json
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Literal

import torch

from mmb.data.dataset import SPLITS, Dataset, Inputs, Progress
from mmb.data.files.delimited_text import is_compressed
from mmb.data.files.table import Table, joined
from mmb.data.files.table_formats import is_text, read_batches, read_training_table, table_files
from mmb.data.inputs.fit_columns import fit_columns
from mmb.data.inputs.label_columns import choose_columns, choose_split, name_list, read_labels
from mmb.data.splits import check_fractions

_SMALL = 1 << 24  # bytes of text that are read as they are


def prepare(
    root: Path,
    *,
    path: str | Path,
    labels: str | Sequence[str],
    features: str | Sequence[str] | None = None,
    drop: str | Sequence[str] = (),
    split_column: str | None = None,
    group: str | None = None,
    time: str | None = None,
    valid_path: str | Path | None = None,
    test_path: str | Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Read a large table once into columns on disk; options are those of `load`."""
    paths = [Path(file) for file in (path, valid_path, test_path) if file is not None]
    if all(map(_is_small, paths)):
        return root
    from mmb.data.files import cache
    from mmb.data.inputs.table_cache import prepare_table, remove_old

    head = next(read_batches(paths[0]))
    tasks, columns, others = _roles(head, labels, features, drop, split_column, group, time)
    as_text = [name for name in (split_column, group) if name is not None]
    files = [(str(file.absolute()), file.stat()) for each in paths for file in table_files(each)]
    versions = [[name, stat.st_size, stat.st_mtime_ns] for name, stat in files]
    what = [[str(file.absolute()) for file in paths], columns, others, tasks, as_text]
    key, version = (hashlib.sha256(json.dumps(part).encode()).hexdigest()[:12] for part in (what, versions))
    folder = root / "table" / f"{key}-{version}"
    if not cache.is_intact(folder):
        prepare_table(folder, paths, [*columns, *others], tasks, as_text, progress)
        remove_old(folder)
    return folder


def load(
    root: Path,
    *,
    path: str | Path,
    labels: str | Sequence[str],
    features: str | Sequence[str] | None = None,
    drop: str | Sequence[str] = (),
    split: Literal["random", "stratified"] = "random",
    split_column: str | None = None,
    group: str | None = None,
    time: str | None = None,
    folds: int = 0,
    fold: int = 0,
    valid_path: str | Path | None = None,
    test_path: str | Path | None = None,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
) -> Dataset:
    """Load a table.

    Args:
        root: What is prepared is in `root/table`; a folder there may be removed at any time.
        path: A file with a header line, or Parquet or Arrow; or a folder of them, with the same columns.
        labels: Names of the label columns, one task each; a list, or one string with commas.
        features: Names of the feature columns; all other columns by default.
        drop: Columns to leave out, such as identifiers.
        split: `"random"`, or `"stratified"`: positives of every task in every part, where there are enough.
        split_column: Column that says `train`, `valid` or `test` for each row.
        group: Column that says which rows belong together, such as a patient: no group is divided.
        time: Column of numbers or dates: the earliest rows train, the latest test.
        folds: Divide the rows into so many folds, at least 3; 0 for none.
        fold: Which of the folds tests; the next one is for validation. All others train.
        valid_path: A file of its own for the validation rows.
        test_path: A file of its own for the test rows.
        fractions: Of train, valid and test. Parts with a file of their own count as nothing.
        seed: Seed of the random split.
    """
    paths = [Path(file) for file in (path, valid_path, test_path) if file is not None]
    own = [part for part, file in zip(SPLITS[1:], (valid_path, test_path), strict=True) if file is not None]
    if own and (split_column or folds):
        raise ValueError(
            "valid_path, test_path: files for parts go together with neither split_column nor folds"
        )
    head = next(read_batches(paths[0]))
    tasks, columns, others = _roles(head, labels, features, drop, split_column, group, time)
    table: Table
    if small := all(map(_is_small, paths)):
        texts = [read_training_table(file) for file in paths]
        table = joined(texts, [*tasks, *columns, *others])
        matrix, sizes = read_labels(table, tasks), [len(text) for text in texts]
    else:
        from mmb.data.inputs.table_cache import PreparedTable

        folder = prepare(
            root,
            path=path,
            labels=labels,
            features=features,
            drop=drop,
            split_column=split_column,
            group=group,
            time=time,
            valid_path=valid_path,
            test_path=test_path,
        )
        table = prepared = PreparedTable.open(folder)
        matrix, sizes = prepared.labels, prepared.facts["sizes"]
    shares = check_fractions(fractions)
    if own:
        left = [0.0 if part in own else share for part, share in zip(SPLITS, shares, strict=True)]
        shares = check_fractions([share / sum(left) for share in left])
    parts = choose_split(
        table,
        matrix,
        shares,
        seed,
        split=split,
        split_column=split_column,
        group=group,
        time=time,
        folds=folds,
        fold=fold,
        rows=sizes[0],
    )
    for part, start, size in zip(own, accumulate(sizes), sizes[1:], strict=False):
        parts[part] = torch.arange(start, start + size)
    inputs: Inputs
    if small:
        encoder = fit_columns(table, columns, parts["train"])
        inputs, _ = encoder.encode(table)
    else:
        from mmb.data.inputs.table_cache import encode_rows

        inputs, encoder = encode_rows(folder, prepared, columns, parts["train"])
    return Dataset(
        name="table",
        inputs=inputs,
        labels=matrix,
        split=parts,
        task_names=tuple(tasks),
        encoder=encoder,
        details={"path": str(path), "seed": seed, "features": list(encoder.feature_names)},
    )


def _is_small(path: Path) -> bool:
    return is_text(path) and not is_compressed(path) and path.stat().st_size <= _SMALL


def _roles(
    table: Table,
    labels: str | Sequence[str],
    features: str | Sequence[str] | None,
    drop: str | Sequence[str],
    split_column: str | None,
    group: str | None,
    time: str | None,
) -> tuple[list[str], list[str], list[str]]:
    """Columns of labels, of features, and those that say how rows are split."""
    others = [name for name in (split_column, group, time) if name is not None]
    for name in (*name_list(drop), *others):
        table.check_column(name)
    tasks = choose_columns(table, "labels", labels)
    columns = choose_columns(table, "features", features, [*tasks, *name_list(drop), *others])
    for name in (*tasks, *columns):
        table.check_column(name)
    return tasks, columns, others
