"""Labels from the columns of a table: cells of zeros and ones, words, or what is said to be positive."""

import math
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

import torch
from torch import Tensor

from mmb._cell_words import NEGATIVE, POSITIVE
from mmb._names import first_few, name_list, shown
from mmb.data.errors import TableError
from mmb.data.files.table import GAP, Table, number
from mmb.label_values import MISSING

_WORDS = {**dict.fromkeys(POSITIVE, 1), **dict.fromkeys(NEGATIVE, 0)}
_WRONG = -2  # stands for cells that are not labels
_SHOWN = 12  # different cells of a column, in a message


def no_label(table: Table, name: str) -> str:
    """Why a column is not a label: most of its cells are something else; empty if it may be one."""
    codes, names = table.names(name)
    signs = torch.tensor([cell.lower() in _WORDS or number(cell) in (0, 1, MISSING) for cell in names])
    codes = codes[codes != GAP]
    if not len(codes) or 2 * int(signs[codes].sum()) >= len(codes):
        return ""
    return f"cells such as {shown(names[int((~signs).nonzero()[0])])} are not labels"


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
        """The labels `[n]` of a column, given which of its cells are positive."""
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
            cells = f"; its cells are {', '.join(map(shown, names))}" if few else ""
            counts = torch.bincount(codes[codes != GAP], minlength=len(names)).tolist()
            remedy = "write labels as 1 and 0, and leave a label that is not known blank"
            coded = len(names) == 2 and all(math.isfinite(number(cell)) for cell in names)  # such as 1 and 2
            if coded or not any(number(cell) in (0, 1) for cell in names):  # else one cell is wrong, not all
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
