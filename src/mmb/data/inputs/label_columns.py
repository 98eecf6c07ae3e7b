"""What the columns of a table say about tasks: their labels, their names, the split of the rows."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from mmb.data.dataset import SPLITS
from mmb.data.errors import DamagedDataError
from mmb.data.files.delimited_text import TextTable, is_blank
from mmb.data.splits import random_split
from mmb.label_values import MISSING

# -1 is not among them: it means "missing" to some and "negative" to others.
_LABELS = {"1": 1, "1.0": 1, "true": 1, "yes": 1, "0": 0, "0.0": 0, "false": 0, "no": 0}


def name_list(names: str | Sequence[str]) -> list[str]:
    """Column names from a list, or from one string with commas."""
    return [name.strip() for name in names.split(",") if name.strip()] if isinstance(names, str) else [*names]


def choose_columns(
    table: TextTable, argument: str, names: str | Sequence[str] | None, reserved: Collection[str] = ()
) -> list[str]:
    """The columns that an argument names; if it is None, all but those that are reserved for other uses."""
    chosen = [n for n in table.columns if n not in reserved] if names is None else name_list(names)
    if not chosen or len({*chosen}) < len(chosen) or not {*chosen}.isdisjoint(reserved):
        raise ValueError(
            f"{argument} must name at least one column, none twice, and none that is used otherwise "
            f"({', '.join(sorted(reserved)) or 'none is'}), got {chosen}"
        )
    return chosen


def read_labels(table: TextTable, tasks: Sequence[str]) -> Tensor:
    """Label columns as `int8 [n, m]` with 1, 0 and -1 for a blank; any other cell is an error."""
    columns = []
    for name in tasks:
        cells = table.column(name)
        # A column has few distinct cells: each is understood once.
        meaning = {
            cell: MISSING if is_blank(cell) else _LABELS.get(cell.strip().lower()) for cell in {*cells}
        }
        wrong = {cell for cell, value in meaning.items() if value is None}
        if wrong:
            row = next(row for row, cell in enumerate(cells) if cell in wrong)
            raise DamagedDataError(
                table.path,
                f"label column {name!r} has {cells[row]!r} in data row {row + 1}",
                "write labels as 1 and 0, and leave a label that is not known blank",
            )
        columns.append(torch.tensor([meaning[cell] for cell in cells], dtype=torch.int8))
    return torch.stack(columns, 1)


def read_split(
    table: TextTable, column: str | None, fractions: Sequence[float], seed: int
) -> dict[str, Tensor]:
    """Rows of train, valid and test by a column of the table, or at random where there is none."""
    if column is None:
        return random_split(len(table.fits), fractions, torch.Generator().manual_seed(seed))
    parts = [cell.strip().lower() for cell in table.column(column)]
    table.refuse_rows([part not in SPLITS for part in parts], f"none of {SPLITS} in column {column!r}")
    return {
        name: torch.tensor([row for row, part in enumerate(parts) if part == name], dtype=torch.int64)
        for name in SPLITS
    }
