"""What the columns of a table say about tasks: their names and their labels."""

import math
import re
import shlex
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch import Tensor

from mmb._cell_words import NEGATIVE, POSITIVE
from mmb._names import first_few, shown
from mmb.data.errors import TableError
from mmb.data.files.table import GAP, Table, number
from mmb.label_values import MISSING

_WORDS = {**dict.fromkeys(POSITIVE, 1), **dict.fromkeys(NEGATIVE, 0)}
_WRONG = -2  # stands for cells that are no labels
_SHOWN = 12  # different cells of a column, in a message
_OWNER = re.compile(
    r"(^|_|\W)(patient|subject|person|participant|donor|family|household|customer|client|user|member|"
    r"id|identifier)(_?(id|nr|no|number|key))?$|[a-z]ID$",
    re.IGNORECASE,
)  # names of columns that say whom a row belongs to


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
            used = first_few([*reserved], _SHOWN)
            raise TableError(
                table.path,
                f"no columns are left for {argument}: all are used otherwise ({used})",
                f"add columns to the file, or name other columns for other uses than {argument}",
            )
        return chosen
    chosen = find_columns(table, names, reserved)
    twice = [name for place, name in enumerate(chosen) if name in chosen[:place]]
    taken = [name for name in chosen if name in reserved]
    if not chosen or twice or taken:
        problem = f"{taken[0]!r}, which has another use" if taken else "no column"
        raise TableError(
            table.path,
            f"data.{argument} names {f'{twice[0]!r} twice' if twice else problem}",
            f"name at least one column, none twice, and none with another use (data.{argument}=NAME)",
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
    return f"cells such as {shown(names[int((~signs).nonzero()[0])])} are no labels"


def may_be_owner(name: str, different: int, rows: int) -> bool:
    """Whether a column may say whom a row belongs to, by its name and how many different cells it has."""
    return bool(_OWNER.search(name)) and 20 < different < rows / 1.2


def find_owners(table: Table, names: Collection[str]) -> dict[str, int]:
    """Those columns that may say whom a row belongs to, with their numbers of different cells."""
    counts = {name: len(table.names(name).names) for name in names if _OWNER.search(name)}
    return {name: count for name, count in counts.items() if may_be_owner(name, count, len(table))}


def check_columns(table: Table, **options: Sequence[str]) -> None:
    """Raise an error that says which option to correct, unless all columns that options name are there."""
    for option, names in options.items():
        for name in names:
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
        alike = {cell.casefold() for cell in positive}
        for place, cell in enumerate(map(_canonical, names)):
            if cell not in positive and cell.casefold() in alike:
                path, row = table.locate(int((codes == place).nonzero()[0]))
                both = shlex.quote(f"data.positive={','.join(sorted({*positive, cell}))}")
                raise TableError(
                    path,
                    f"label column {name!r} has {shown(cell)} in data row {row}, which differs from a "
                    "positive cell only in its case, and would be negative",
                    f"write such cells alike, or name each of them ({both})",
                )
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
            cells = f"; its cells are {', '.join(map(shown, names))}" if few else ""
            counts = torch.bincount(codes[codes != GAP], minlength=len(names)).tolist()
            remedy = "write labels as 1 and 0, and leave a label that is not known blank"
            coded = len(names) == 2 and all(math.isfinite(number(cell)) for cell in names)  # such as 1 and 2
            if coded or not any(number(cell) in (0, 1) for cell in names):  # else it is a stray one
                signs = [cell for cell in names if _WORDS.get(cell.lower()) == 1]
                found = [pair for pair in zip(counts, names, strict=True) if number(pair[1]) != 0]
                rarest = min(found)[1] if few else "CELL"
                chosen = shlex.quote(f"data.positive={signs[0] if signs else rarest}")
                remedy += f"; or say which cells are positive, all others being negative ({chosen})"
                if few and len(names) > 2:
                    remedy += "; or, for a task for each of them, write a column of 1 and 0 for each"
            problem = f"label column {name!r} has {shown(table.cells(name)[row])} in data row {place}{cells}"
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
            + (f", but {first_few([*map(shown, found[:_SHOWN]), *found[_SHOWN:]], _SHOWN)}" if found else ""),
            "name cells of this column (data.positive=CELL), or leave it out of the labels",
        )


def _canonical(cell: str) -> str:
    """A cell such that those that say the same number are the same."""
    value = number(cell)
    return f"{value:.17g}" if math.isfinite(value) else cell.strip()
