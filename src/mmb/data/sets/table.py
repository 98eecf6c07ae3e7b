"""Your own table, of any size: feature columns and label columns, gaps allowed in both.

CSV or TSV (separators are found, `.gz` and `.zst` are expanded), Parquet, Arrow, or a folder of such files.
Features: numbers are standardized and gaps filled with the median, and so are columns of many dates; other
columns are one-hot, very many names hashed; all learned from the training rows and remembered in the encoder,
so that new files are encoded identically. Columns that say nothing, such as identifiers, free text and blank
ones, are left out; naming one as a feature is an error. Labels: 1 / 0 (also true / false, yes / no, positive
/ negative, or what `positive` says), blank if not known, or -1 in a column that has zeros. Split at random by
the seed, also stratified by labels or with groups kept whole; into folds; in order of time; by a column that
says train, valid or test; or by a file for each part.

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

from mmb._names import name_list
from mmb.data.dataset import Dataset, Inputs, Progress
from mmb.data.files import cache
from mmb.data.files.delimited_text import is_compressed
from mmb.data.files.table import Table, joined
from mmb.data.files.table_formats import is_text, read_batches, read_training_table, table_files
from mmb.data.inputs.column_roles import check_columns, choose_columns, find_columns
from mmb.data.inputs.columns import ColumnEncoder
from mmb.data.inputs.divided_rows import DividedTable, own_files
from mmb.data.inputs.fit_columns import fit_columns
from mmb.data.inputs.label_reader import check_positive, read_labels
from mmb.data.inputs.quartiles import Spread
from mmb.data.inputs.table_cache import PreparedTable, encode_rows, prepare_table, remove_old
from mmb.data.inputs.table_split import TableSplit, own_parts

_SMALL = 1 << 24  # bytes of text that are read as they are
Roles = tuple[list[str], list[str], list[str]]
"""Columns of labels, of features, and those that say how rows are split."""
Positive = str | Sequence[str] | None
"""Cells that mean positive, if labels are not 1 and 0."""
Encode = Callable[[Sequence[str], Tensor, bool, Spread], tuple[Inputs, ColumnEncoder]]
Opened = tuple[Table, Tensor, Sequence[int], Encode]
"""A table, its labels, rows of each of its paths, and how columns are encoded, given training rows."""


def prepare(
    root: Path,
    *,
    path: str | Path,
    labels: str | Sequence[str],
    positive: str | Sequence[str] | None = None,
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
    how = TableSplit(split_column=split_column, group=group, time=time)
    roles = _roles(next(read_batches(paths[0])), labels, features, drop, how)
    return _prepare(root, paths, roles, _as_text(how), positive, progress)


def _prepare(
    root: Path,
    paths: Sequence[Path],
    roles: Roles,
    text: Sequence[str],
    positive: Positive = None,
    progress: Progress | None = None,
) -> Path:
    """Prepare tables, with some columns kept as names."""
    tasks, columns, others = roles
    files = [(str(file.absolute()), file.stat()) for each in paths for file in table_files(each)]
    versions = [[name, stat.st_size, stat.st_mtime_ns] for name, stat in files]
    what = [[str(file.absolute()) for file in paths], columns, others, tasks, text]
    what = what if positive is None else [*what, name_list(positive)]
    key, version = (hashlib.sha256(json.dumps(part).encode()).hexdigest()[:12] for part in (what, versions))
    folder = root / "table" / f"{key}-{version}"
    if not cache.is_intact(folder):
        prepare_table(folder, paths, [*columns, *others], tasks, text, progress, positive)
        remove_old(folder)
    return folder


def load(
    root: Path,
    *,
    path: str | Path,
    labels: str | Sequence[str],
    positive: str | Sequence[str] | None = None,
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
    spread: Spread = "deviation",
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
) -> Dataset:
    """Load a table.

    Args:
        root: What is prepared is in `root/table`; a folder there may be removed at any time.
        path: A file with a header line, or Parquet or Arrow; or a folder of them, with the same columns.
        labels: Names of the label columns, one task each; a list, or one string with commas. Patterns, such
            as `assay_*`, stand for all columns that match.
        positive: Cells that mean positive, such as `malignant`; all others that are not blank are negative.
            By default labels are 1 and 0, yes and no, and the like.
        features: Names of the feature columns, or patterns; all other columns by default.
        drop: Columns to leave out, such as identifiers; names or patterns.
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
        spread: What numbers are divided by: the standard deviation, or `"quartiles"`: where long tails widen
            it, the deviation of a normal distribution with the same quartiles. Far out, numbers then level
            off at 4 deviations.
        fractions: Of train, valid and test. Parts with a file of their own count as nothing.
        seed: Seed of the random split.
    """
    paths = [Path(file) for file in (path, valid_path, test_path) if file is not None]
    own = own_parts(valid_path, test_path)
    how = TableSplit(fractions, seed, split, split_column, group, time, folds, fold, own)
    if divide and own:
        raise ValueError("divide: rows of one folder are divided; leave out valid_path and test_path")
    paths = own_files(Path(path)) if divide else paths
    head = next(read_batches(paths[0]))
    roles, as_text = _roles(head, labels, features, drop, how), _as_text(how)
    tasks, columns, _ = roles
    if divide:
        table, matrix, sizes, encode = _open_divided(root, Path(path), paths, roles, as_text, positive)
    elif all(map(_is_small, paths)):
        table, matrix, sizes, encode = _open_small(paths, roles, positive)
    else:
        table, matrix, sizes, encode = _open_prepared(root, paths, roles, as_text, positive)
    check_positive(table, tasks, matrix, positive)
    parts = how.divide(table, matrix, sizes)
    inputs, encoder = encode(columns, parts["train"], features is None, spread)
    return Dataset(
        name="table",
        inputs=inputs,
        labels=matrix,
        split=parts,
        task_names=tuple(tasks),
        encoder=encoder,
        details={
            "path": str(path),
            **how.facts(table),
            "seed": seed,
            "features": list(encoder.feature_names),
            "left_out": {**_unusable(head), **encoder.left_out} if features is None else {},
        },
    )


def _open_small(paths: Sequence[Path], roles: Roles, positive: Positive) -> Opened:
    """Files of text, read as they are."""
    texts = [read_training_table(file) for file in paths]
    tasks, columns, others = roles
    table = joined(texts, [*tasks, *columns, *others])

    def encode(
        names: Sequence[str], rows: Tensor, leave_out: bool, spread: Spread
    ) -> tuple[Inputs, ColumnEncoder]:
        encoder = fit_columns(table, names, rows, leave_out=leave_out, spread=spread)
        return encoder.encode(table)[0], encoder

    return table, read_labels(table, tasks, positive), [len(text) for text in texts], encode


def _open_prepared(
    root: Path, paths: Sequence[Path], roles: Roles, text: Sequence[str], positive: Positive
) -> Opened:
    """Tables of any size, prepared on disk."""
    folder = _prepare(root, paths, roles, text, positive)
    table = PreparedTable.open(folder)
    return table, table.labels, table.facts["sizes"], partial(encode_rows, folder, table)


def _open_divided(
    root: Path, path: Path, paths: Sequence[Path], roles: Roles, text: Sequence[str], positive: Positive
) -> Opened:
    """A folder of tables, of which each process prepares some."""
    table = DividedTable.open(
        path, lambda more: _prepare(root, paths, roles, sorted({*text, *more}), positive)
    )
    return table, table.labels, [len(table)], table.encode_rows


def _is_small(path: Path) -> bool:
    return is_text(path) and not is_compressed(path) and path.stat().st_size <= _SMALL


def _roles(
    table: Table,
    labels: str | Sequence[str],
    features: str | Sequence[str] | None,
    drop: str | Sequence[str],
    how: TableSplit,
) -> Roles:
    """What each column is for."""
    others = list(how.columns.values())
    dropped = find_columns(table, drop)
    check_columns(table, **{option: [name] for option, name in how.columns.items()})
    tasks = choose_columns(table, "labels", find_columns(table, labels, [*dropped, *others]), others)
    check_columns(table, labels=tasks, drop=dropped)
    aside = [*tasks, *dropped, *others, *(_unusable(table) if features is None else ())]
    columns = choose_columns(table, "features", features, aside)
    check_columns(table, features=columns)
    return tasks, columns, others


def _as_text(how: TableSplit) -> list[str]:
    """Columns that are kept as names, whatever their cells are."""
    return [name for option, name in how.columns.items() if option != "time"]


def _unusable(table: Table) -> dict[str, str]:
    """Columns whose type says that they cannot be used, with the reason."""
    found = {name: table.unusable(name) for name in table.column_names}
    return {name: reason for name, reason in found.items() if reason}
