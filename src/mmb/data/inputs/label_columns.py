"""What the columns of a table say about tasks: their labels, their names, the split of the rows."""

import math
import shlex
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmb._cell_words import NEGATIVE, POSITIVE
from mmb._names import first_few
from mmb.data.dataset import SPLITS
from mmb.data.errors import TableError
from mmb.data.files.table import GAP, Table, number
from mmb.data.inputs.columns import Date
from mmb.data.splits import check_fractions, grouped_split, random_split, split_rows, united
from mmb.label_values import MISSING

_WORDS = {**dict.fromkeys(POSITIVE, 1), **dict.fromkeys(NEGATIVE, 0)}
_WRONG = -2  # stands for cells that are no labels
_SHOWN = 12  # different cells of a column, in a message


def name_list(names: str | Sequence[str]) -> list[str]:
    """Column names from a list, or from one string with commas."""
    if isinstance(names, str):
        return [name.strip() for name in names.split(",") if name.strip()]
    return [str(name) for name in names]


def find_columns(table: Table, names: str | Sequence[str], reserved: Collection[str] = ()) -> list[str]:
    """Column names, in which `*` and `?` stand for any letters and any letter.

    Such a pattern finds no reserved columns. A name or pattern that finds nothing is kept as it is.
    """
    columns, chosen = table.column_names, list[str]()
    if isinstance(names, str) and names.strip() in columns:
        return [names.strip()]  # also with commas in it
    for name in name_list(names):
        pattern = name not in columns and ("*" in name or "?" in name)
        found = [c for c in columns if c not in reserved and fnmatchcase(c, name)] if pattern else []
        chosen += [c for c in found if c not in chosen] or [name]
    return chosen


def choose_columns(
    table: Table, argument: str, names: str | Sequence[str] | None, reserved: Collection[str] = ()
) -> list[str]:
    """The columns that an argument names; if it is None, all but those that are reserved for other uses."""
    if names is None:
        chosen = [name for name in table.column_names if name not in reserved]
        if not chosen:
            raise TableError(
                table.path,
                f"no columns are left for {argument}: all are used otherwise ({', '.join(reserved)})",
                f"add columns to the file, or name other columns for other uses than {argument}",
            )
        return chosen
    chosen = find_columns(table, names, reserved)
    if not chosen or len({*chosen}) < len(chosen) or not {*chosen}.isdisjoint(reserved):
        raise ValueError(
            f"{argument} must name at least one column, none twice, and none that is used otherwise "
            f"({', '.join(sorted(reserved)) or 'none is'}), got {chosen}"
        )
    return chosen


def choose_labels(
    table: Table,
    names: str | Sequence[str] | None,
    reserved: Collection[str],
    positive: str | Sequence[str] | None = None,
) -> tuple[list[str], dict[str, str]]:
    """The label columns, and the columns that were left out, with the reason.

    If no columns are named, those that are not reserved are labels, but for those that mostly hold something
    else, such as identifiers and measurements.
    """
    chosen = choose_columns(table, "labels", names, reserved)
    if names is not None or positive is not None:
        return chosen, {}
    found = {name: _no_label(table, name) for name in chosen}
    tasks = [name for name in chosen if not found[name]]
    return tasks or chosen, {name: reason for name, reason in found.items() if reason and tasks}


def _no_label(table: Table, name: str) -> str:
    """Why a column is not one of labels: most of its cells are something else; empty if it may be one."""
    codes, names = table.names(name)
    signs = torch.tensor([cell.lower() in _WORDS or number(cell) in (0, 1, MISSING) for cell in names])
    codes = codes[codes != GAP]
    if not len(codes) or 2 * int(signs[codes].sum()) >= len(codes):
        return ""
    return f"cells such as {names[int((~signs).nonzero()[0])]!r} are no labels"


def check_columns(table: Table, **options: Sequence[str | None]) -> None:
    """Raise an error that says which option to correct, unless all columns that options name are there."""
    for option, names in options.items():
        for name in filter(None, names):
            table.check_column(name, option)


def read_labels(table: Table, tasks: Sequence[str], positive: str | Sequence[str] | None = None) -> Tensor:
    """Label columns as `int8 [n, m]`: 1 and 0 (or yes, no, true, false), -1 for a gap.

    A blank cell is a gap; so is -1 in a column that has zeros. Any other cell is an error that names it. If
    it is said which cells are positive, all others are negative, and only blank cells are gaps.
    """
    reader = LabelReader(tasks, positive)
    labels = reader(table)
    reader.finish()
    check_positive(table, tasks, labels, positive)
    return labels


class LabelReader:
    """Reads the labels of a file some rows at a time; see `read_labels`."""

    def __init__(self, tasks: Sequence[str], positive: str | Sequence[str] | None = None) -> None:
        self._tasks = tasks
        self._positive = None if positive is None else {_canonical(cell) for cell in name_list(positive)}
        self._seen = torch.zeros(2, len(tasks), dtype=torch.bool)  # whether a task has 0, 1
        self._minus_one: dict[str, tuple[Path, int]] = {}  # where a task first has -1

    def __call__(self, table: Table) -> Tensor:
        """Labels of some rows, `int8 [n, m]`."""
        if self._positive is not None:
            return torch.stack([self._read_chosen(table, name, self._positive) for name in self._tasks], 1)
        values = table.matrix(self._tasks)
        minus_one = values == MISSING
        labels = torch.where((values == 0) | (values == 1), values, _WRONG)
        labels = labels.masked_fill_(values.isnan() | minus_one, MISSING).to(torch.int8)
        for task in (labels == _WRONG).any(0).nonzero().flatten().tolist():
            self._read_words(table, self._tasks[task], labels[:, task])
        for task in minus_one.any(0).nonzero().flatten().tolist():
            row = int(minus_one[:, task].nonzero()[0])
            self._minus_one.setdefault(self._tasks[task], table.locate(row))
        self._seen |= torch.stack([(labels == value).any(0) for value in (0, 1)])
        return labels

    def _read_chosen(self, table: Table, name: str, positive: Collection[str]) -> Tensor:
        """The labels `[n]` of a column of which it is said what is positive."""
        codes, names = table.names(name)
        signs = [*(int(_canonical(cell) in positive) for cell in names), MISSING]
        return torch.tensor(signs, dtype=torch.int8)[codes]

    def _read_words(self, table: Table, name: str, labels: Tensor) -> None:
        """Fill in the labels `[n]` of a column that says yes and no, or true and false."""
        codes, names = table.names(name)
        words = torch.tensor([*(_WORDS.get(word.lower(), _WRONG) for word in names), MISSING])
        wrong = labels == _WRONG
        labels[wrong] = words[codes][wrong].to(torch.int8)
        if bool((labels == _WRONG).any()):
            row = int((labels == _WRONG).nonzero()[0])
            path, place = table.locate(row)
            few = 2 <= len(names) <= _SHOWN
            cells = f"; its cells are {', '.join(map(repr, names))}" if few else ""
            counts = torch.bincount(codes[codes != GAP], minlength=len(names)).tolist()
            remedy = "write labels as 1 and 0, and leave a label that is not known blank"
            if not any(number(cell) in (0, 1) for cell in names):  # or the cell is but a stray one
                signs = [cell for cell in names if _WORDS.get(cell.lower()) == 1]
                rarest = min(zip(counts, names, strict=True))[1] if few else "CELL"
                chosen = shlex.quote(f"data.positive={signs[0] if signs else rarest}")
                remedy += f"; or say which cells are positive, all others being negative ({chosen})"
                if few and len(names) > 2:
                    remedy += "; or, for a task for each of them, write a column of 1 and 0 for each"
            problem = f"label column {name!r} has {table.cells(name)[row]!r} in data row {place}{cells}"
            raise TableError(path, problem, remedy)

    def finish(self) -> None:
        """Refuse columns in which -1 may mean negative: those with -1 and 1 where nothing is 0."""
        for task, (path, row) in self._minus_one.items():
            zero, one = self._seen[:, self._tasks.index(task)].tolist()
            if one and not zero:
                raise TableError(
                    path,
                    f"label column {task!r} has 1 and -1 (data row {row}) but no 0, so -1 may mean negative "
                    "or not known",
                    "write negatives as 0, and leave a label that is not known blank; or, if -1 means "
                    "negative, say so: data.positive=1",
                )


def check_positive(
    table: Table, tasks: Sequence[str], labels: Tensor, positive: str | Sequence[str] | None
) -> None:
    """Refuse label columns that have none of the cells that were said to be positive."""
    lacking = [] if positive is None else (labels != 1).all(0).nonzero().flatten().tolist()
    if lacking:
        task = tasks[lacking[0]]
        found = table.names(task).names if task in table.column_names else []
        raise TableError(
            table.path,
            f"label column {task!r} has no cell that is positive by data.positive={positive}"
            + (f", but {first_few(found, _SHOWN)}" if found else ""),
            "name cells of this column (data.positive=CELL), or leave it out of the labels",
        )


def _canonical(cell: str) -> str:
    """A cell such that those that say the same number are the same."""
    value = number(cell)
    return f"{value:.17g}" if math.isfinite(value) else cell.strip()


def choose_split(
    table: Table,
    labels: Tensor,
    fractions: Sequence[float],
    seed: int,
    *,
    split: str = "random",
    split_column: str | None = None,
    group: str | None = None,
    time: str | None = None,
    folds: int = 0,
    fold: int = 0,
    sizes: Sequence[int] | None = None,
    own: Sequence[str] = (),
    together: Tensor | None = None,
    scaffolds: Tensor | None = None,
) -> dict[str, Tensor]:
    """Rows of train, valid and test as options of a data set say.

    Args:
        table: The table.
        labels: Of its rows, `int8 [n, m]`.
        fractions: As in `split_rows`.
        seed: As in `split_rows`.
        split: `"random"`, `"stratified"` or, with scaffolds, `"scaffold"`, whose place groups and time take.
        split_column: Column that says the part of each row.
        group: Column that says which rows belong together.
        time: Column of numbers or dates, by which rows are ordered.
        folds: As in `split_rows`.
        fold: As in `split_rows`.
        sizes: Rows of each file, if there are several.
        own: Parts to which the second file and those after it belong. Only the rows of the first are split.
        together: Codes `[n]` of rows that are never divided within a file, such as copies.
        scaffolds: Codes `[n]` of the scaffolds of molecules.
    """
    kinds = ("scaffold", "random", "stratified")[scaffolds is None :]
    if split not in kinds:
        raise ValueError(f"split must be {' or '.join(map(repr, kinds))}, got {split!r}")
    if own and (split_column or folds):
        raise ValueError(
            "valid_path, test_path: files for parts go together with neither split_column nor folds"
        )
    if fold and not folds:
        raise ValueError(f"fold: got {fold} without folds; say how many there are, such as folds=5")
    if split_column is not None:
        if group or time or folds or split != ("random" if scaffolds is None else "scaffold"):
            raise ValueError("split_column says all there is to say: leave out split, group, time and folds")
        return read_split(table, split_column, fractions, seed)
    groups = None if group is None else _groups(table, group)
    times = None if time is None else _times(table, time)
    by_scaffold = split == "scaffold" and group is None and time is None
    units = scaffolds if by_scaffold else united(groups, together)
    sizes = [len(table)] if sizes is None else sizes
    rows, shares = sizes[0], check_fractions(fractions)
    if own:
        left = [0.0 if part in own else share for part, share in zip(SPLITS, shares, strict=True)]
        shares = check_fractions([share / sum(left) for share in left])
    if by_scaffold and units is not None and not folds:
        parts = grouped_split(units[:rows], shares)
    else:
        parts = split_rows(
            rows,
            shares,
            seed,
            labels=labels[:rows] if split == "stratified" else None,
            groups=None if units is None else units[:rows],
            times=None if times is None else times[:rows],
            folds=folds,
            fold=fold,
        )
    for part, start, size in zip(own, accumulate(sizes), sizes[1:], strict=False):
        parts[part] = torch.arange(start, start + size)
    if group is not None and groups is not None:
        _refuse_divided(table, group, groups, sizes)
    if time is not None and times is not None:
        _refuse_disorder(table, time, times, parts, own)
    return parts


def _groups(table: Table, name: str) -> Tensor:
    """Codes `[n]` of a column that says which rows belong together."""
    codes, names = table.names(name)
    table.refuse_rows(codes == GAP, f"a blank cell in column {name!r}, which says their group", "group")
    if len(table.files) < 2:
        return codes
    places: dict[str, int] = {}  # one file may have 7, and another 7.0
    return torch.tensor([places.setdefault(n.removesuffix(".0"), len(places)) for n in names])[codes]


def _refuse_divided(table: Table, name: str, groups: Tensor, sizes: Sequence[int]) -> None:
    """Refuse files for parts that share a group."""
    for start, size in zip(accumulate(sizes), sizes[1:], strict=False):
        shared = torch.isin(groups[start : start + size], groups[:start]).nonzero().flatten()
        if len(shared):
            row = start + int(shared[0])
            path, place = table.locate(row)
            other, first = table.locate(int((groups[:start] == groups[row]).nonzero()[0]))
            many = "1 row is" if len(shared) == 1 else f"{len(shared)} rows are"
            raise TableError(
                path,
                f"{many} of groups that another file has: {name!r} is {_cell(table, name, row)!r} in data "
                f"row {place}, and in data row {first} of {other}",
                f"keep each group in one file, or leave out data.group={name} if groups may be divided",
            )


def _refuse_disorder(
    table: Table, name: str, times: Tensor, parts: dict[str, Tensor], own: Sequence[str]
) -> None:
    """Refuse files for parts that are not in order of time: first train, then valid, then test."""
    for before, after in pairwise(part for part in SPLITS if len(parts[part])):
        last = int(parts[before][times[parts[before]].argmax()])
        first = int(parts[after][times[parts[after]].argmin()])
        if {before, after} & {*own} and times[last] >= times[first]:
            (path, row), (other, other_row) = table.locate(first), table.locate(last)
            raise TableError(
                path,
                f"{name!r} is {_cell(table, name, first)!r} in data row {row}, which is for {after}, but "
                f"{_cell(table, name, last)!r} in data row {other_row} of {other}, which is for {before}",
                "give files of which those for valid are later than those for train, and those for test the "
                "latest; take no other part from the first file (data.fractions=[1,0,0]); or leave out "
                f"data.time={name}",
            )


def _cell(table: Table, name: str, row: int) -> str:
    return table.take(torch.tensor([row])).cells(name)[0]


def own_parts(valid_path: str | Path | None, test_path: str | Path | None) -> list[str]:
    """Parts that have a file of their own."""
    return [part for part, path in zip(SPLITS[1:], (valid_path, test_path), strict=True) if path is not None]


def split_facts(
    table: Table, split: str, *, split_column: str | None, time: str | None, own: Sequence[str]
) -> dict[str, Any]:
    """What the details of a data set say of its split: how rows are divided, and the files they are from."""
    facts: dict[str, Any] = {"split": "given" if split_column else "time" if time else split}
    if own:
        facts["own_files"] = [*own]
    if len(table.files) > 1:
        facts["files"] = [[str(path), rows] for path, rows in table.files]
    return facts


def _times(table: Table, name: str) -> Tensor:
    """A column of numbers or dates, float64 `[n]`."""
    values = table.numbers(name)
    if bool(values.isinf().any()):
        values = Date(name).values(table)
    table.refuse_rows(
        ~values.isfinite(), f"neither a number nor a date such as 2024-01-31 in column {name!r}", "time"
    )
    return values


def read_split(table: Table, column: str | None, fractions: Sequence[float], seed: int) -> dict[str, Tensor]:
    """Rows of train, valid and test by a column of the table, or at random where there is none."""
    if column is None:
        return random_split(len(table), fractions, torch.Generator().manual_seed(seed))
    codes, names = table.names(column)
    parts = torch.tensor([*(SPLITS.index(n.lower()) if n.lower() in SPLITS else GAP for n in names), GAP])
    part = parts[codes]
    table.refuse_rows(part == GAP, f"none of {', '.join(SPLITS)} in column {column!r}", "split_column")
    return {name: (part == index).nonzero().flatten() for index, name in enumerate(SPLITS)}
