"""Your own table, of any size: feature columns and label columns, gaps allowed in both.

CSV or TSV (separators are found, `.gz` and `.zst` are expanded), Parquet, Arrow, or a folder of such files.
Features: numbers are standardized and gaps filled with the median, and so are columns of many dates; other
columns are one-hot, very many names hashed; all learned from the training rows and remembered in the encoder,
so that new files are encoded identically. Labels: 1 / 0 (also true / false, yes / no), blank if not known, or
-1 in a column that has zeros. Split at random by the seed, also stratified by labels or with groups kept
whole; into folds; in order of time; by a column that says train, valid or test; or by a file for each part.

A text file of up to 16 MB is read as it is. Other tables are prepared once, in `root/table`, as columns on
disk, of which training reads only the rows it draws. Of more than a million training rows, features are
learned from as many, evenly taken.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from torch import Tensor

from mmb.data.dataset import Dataset, Inputs, Progress
from mmb.data.files import cache
from mmb.data.files.delimited_text import is_compressed
from mmb.data.files.table import Table, joined
from mmb.data.files.table_formats import is_text, read_batches, read_training_table, table_files
from mmb.data.inputs.columns import ColumnEncoder
from mmb.data.inputs.divided_rows import DividedTable, own_files
from mmb.data.inputs.fit_columns import fit_columns
from mmb.data.inputs.label_columns import (
    check_columns,
    choose_columns,
    choose_split,
    name_list,
    own_parts,
    read_labels,
)
from mmb.data.inputs.table_cache import PreparedTable, encode_rows, prepare_table, remove_old

_SMALL = 1 << 24  # bytes of text that are read as they are
Roles = tuple[list[str], list[str], list[str]]
"""Columns of labels, of features, and those that say how rows are split."""
Opened = tuple[Table, Tensor, Sequence[int], Callable[[Sequence[str], Tensor], tuple[Inputs, ColumnEncoder]]]
"""A table, its labels, rows of each of its paths, and how columns are encoded, given training rows."""


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
    roles = _roles(next(read_batches(paths[0])), labels, features, drop, split_column, group, time)
    return _prepare(root, paths, roles, [name for name in (split_column, group) if name], progress)


def _prepare(
    root: Path, paths: Sequence[Path], roles: Roles, text: Sequence[str], progress: Progress | None = None
) -> Path:
    """Prepare tables, with some columns kept as names."""
    tasks, columns, others = roles
    files = [(str(file.absolute()), file.stat()) for each in paths for file in table_files(each)]
    versions = [[name, stat.st_size, stat.st_mtime_ns] for name, stat in files]
    what = [[str(file.absolute()) for file in paths], columns, others, tasks, text]
    key, version = (hashlib.sha256(json.dumps(part).encode()).hexdigest()[:12] for part in (what, versions))
    folder = root / "table" / f"{key}-{version}"
    if not cache.is_intact(folder):
        prepare_table(folder, paths, [*columns, *others], tasks, text, progress)
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
    divide: bool = False,
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
        divide: Divide the files of a folder among the processes that `torchrun` started: each opens only its
            own, and rows travel when they are drawn.
        fractions: Of train, valid and test. Parts with a file of their own count as nothing.
        seed: Seed of the random split.
    """
    paths = [Path(file) for file in (path, valid_path, test_path) if file is not None]
    own = own_parts(valid_path, test_path)
    if divide and own:
        raise ValueError("divide: rows of one folder are divided; leave out valid_path and test_path")
    paths = own_files(Path(path)) if divide else paths
    roles = _roles(next(read_batches(paths[0])), labels, features, drop, split_column, group, time)
    tasks, columns, _ = roles
    as_text = [name for name in (split_column, group) if name]
    if divide:
        table, matrix, sizes, encode = _open_divided(root, Path(path), paths, roles, as_text)
    elif all(map(_is_small, paths)):
        table, matrix, sizes, encode = _open_small(paths, roles)
    else:
        table, matrix, sizes, encode = _open_prepared(root, paths, roles, as_text)
    parts = choose_split(
        table,
        matrix,
        fractions,
        seed,
        split=split,
        split_column=split_column,
        group=group,
        time=time,
        folds=folds,
        fold=fold,
        sizes=sizes,
        own=own,
    )
    inputs, encoder = encode(columns, parts["train"])
    return Dataset(
        name="table",
        inputs=inputs,
        labels=matrix,
        split=parts,
        task_names=tuple(tasks),
        encoder=encoder,
        details={"path": str(path), "seed": seed, "features": list(encoder.feature_names)},
    )


def _open_small(paths: Sequence[Path], roles: Roles) -> Opened:
    """Files of text, read as they are."""
    texts = [read_training_table(file) for file in paths]
    tasks, columns, others = roles
    table = joined(texts, [*tasks, *columns, *others])

    def encode(names: Sequence[str], rows: Tensor) -> tuple[Inputs, ColumnEncoder]:
        encoder = fit_columns(table, names, rows)
        return encoder.encode(table)[0], encoder

    return table, read_labels(table, tasks), [len(text) for text in texts], encode


def _open_prepared(root: Path, paths: Sequence[Path], roles: Roles, text: Sequence[str]) -> Opened:
    """Tables of any size, prepared on disk."""
    folder = _prepare(root, paths, roles, text)
    table = PreparedTable.open(folder)
    return table, table.labels, table.facts["sizes"], partial(encode_rows, folder, table)


def _open_divided(root: Path, path: Path, paths: Sequence[Path], roles: Roles, text: Sequence[str]) -> Opened:
    """A folder of tables, of which each process prepares some."""
    table = DividedTable.open(path, lambda more: _prepare(root, paths, roles, sorted({*text, *more})))
    return table, table.labels, [len(table)], table.encode_rows


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
) -> Roles:
    """What each column is for."""
    others = [name for name in (split_column, group, time) if name is not None]
    tasks = choose_columns(table, "labels", labels)
    columns = choose_columns(table, "features", features, [*tasks, *name_list(drop), *others])
    check_columns(table, labels=tasks, features=columns, drop=name_list(drop))
    check_columns(table, split_column=[split_column], group=[group], time=[time])
    return tasks, columns, others
