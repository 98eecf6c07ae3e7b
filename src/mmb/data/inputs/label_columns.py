"""What the columns of a table say about tasks: their labels, their names, the split of the rows."""

from collections.abc import Collection, Sequence
from pathlib import Path

import torch
from torch import Tensor

from mmb.data.dataset import SPLITS
from mmb.data.errors import TableError
from mmb.data.files.table import GAP, Table
from mmb.data.splits import random_split
from mmb.label_values import MISSING

_WORDS = {"true": 1, "yes": 1, "false": 0, "no": 0}
_MINUS_ONE, _WRONG = -2, -3  # codes, besides those of labels, of cells that say -1 and of those that say else


def name_list(names: str | Sequence[str]) -> list[str]:
    """Column names from a list, or from one string with commas."""
    return [name.strip() for name in names.split(",") if name.strip()] if isinstance(names, str) else [*names]


def choose_columns(
    table: Table, argument: str, names: str | Sequence[str] | None, reserved: Collection[str] = ()
) -> list[str]:
    """The columns that an argument names; if it is None, all but those that are reserved for other uses."""
    chosen = [n for n in table.column_names if n not in reserved] if names is None else name_list(names)
    if not chosen or len({*chosen}) < len(chosen) or not {*chosen}.isdisjoint(reserved):
        raise ValueError(
            f"{argument} must name at least one column, none twice, and none that is used otherwise "
            f"({', '.join(sorted(reserved)) or 'none is'}), got {chosen}"
        )
    return chosen


def read_labels(table: Table, tasks: Sequence[str]) -> Tensor:
    """Label columns as `int8 [n, m]`: 1 and 0 (or yes, no, true, false), -1 for a gap.

    A blank cell is a gap; so is -1 in a column that has zeros. Any other cell is an error that names it.
    """
    labels = label_cells(table, tasks)
    settle_minus_one(table.path, tasks, labels)
    return labels


def label_cells(table: Table, tasks: Sequence[str]) -> Tensor:
    """Labels as `read_labels`, but cells that say -1 are still apart, for `settle_minus_one`."""
    return torch.stack([_label_column(table, name) for name in tasks], 1)


def _label_column(table: Table, name: str) -> Tensor:
    values = table.numbers(name)
    known = ((values == 0) | (values == 1)).logical_or_(values == -1)
    labels = torch.where(known, values, torch.where(values.isnan(), MISSING, _WRONG)).to(torch.int8)
    labels[values == -1] = _MINUS_ONE
    if bool(values.isinf().any()):
        codes, names = table.names(name)
        words = torch.tensor([*(_WORDS.get(word.lower(), _WRONG) for word in names), MISSING])
        labels = torch.where(values.isinf(), words[codes].to(torch.int8), labels)
    if bool((labels == _WRONG).any()):
        row = int((labels == _WRONG).nonzero()[0])
        raise TableError(
            table.path,
            f"label column {name!r} has {table.cells(name)[row]!r} in data row {table.first + row + 1}",
            "write labels as 1 and 0, and leave a label that is not known blank",
        )
    return labels


def settle_minus_one(path: Path, tasks: Sequence[str], labels: Tensor) -> None:
    """Turn cells that say -1 into gaps, in place; refuse them in columns with 1 where nothing is 0."""
    says = labels == _MINUS_ONE
    unclear = says.any(0) & (labels == 1).any(0) & ~(labels == 0).any(0)
    if bool(unclear.any()):
        task = int(unclear.nonzero()[0])
        raise TableError(
            path,
            f"label column {tasks[task]!r} has 1 and -1 (data row {int(says[:, task].nonzero()[0]) + 1}) but "
            "no 0, so -1 may mean negative or not known",
            "write negatives as 0, and leave a label that is not known blank",
        )
    labels[says] = MISSING


def read_split(table: Table, column: str | None, fractions: Sequence[float], seed: int) -> dict[str, Tensor]:
    """Rows of train, valid and test by a column of the table, or at random where there is none."""
    if column is None:
        return random_split(len(table), fractions, torch.Generator().manual_seed(seed))
    codes, names = table.names(column)
    parts = torch.tensor([*(SPLITS.index(n.lower()) if n.lower() in SPLITS else GAP for n in names), GAP])
    part = parts[codes]
    table.refuse_rows(part == GAP, f"none of {SPLITS} in column {column!r}")
    return {name: (part == index).nonzero().flatten() for index, name in enumerate(SPLITS)}
