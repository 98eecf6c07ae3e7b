"""Table columns as numbers: gaps filled, numbers standardized, categories one-hot, all of it remembered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmb._names import shown
from mmb.data.dataset import NewRows
from mmb.data.files.table import GAP, Table
from mmb.data.files.table_formats import read_batches
from mmb.data.inputs.column_kinds import (
    Category,
    Column,
    Hashed,
    Number,
    WrittenNumber,
    column_from_json,
    column_to_json,
)
from mmb.data.inputs.quartiles import squash


class _Layout(NamedTuple):
    """Of the numeric columns how they are scaled and where they are among the features; where names start."""

    fill: Tensor
    mean: Tensor
    scale: Tensor
    reach: Tensor
    columns: Tensor
    names: list[int]


@dataclass(frozen=True)
class ColumnEncoder:
    """The columns of a table as one float matrix, the same for every file."""

    # how each column is encoded, in the order of the encoded features
    columns: tuple[Column, ...]
    # columns that say nothing, with the reason; new files need not have them
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Name of each encoded feature; a category's features are called `column=category`."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @cached_property
    def numeric(self) -> list[Number]:
        """The columns of numbers, amounts and dates."""
        return [column for column in self.columns if isinstance(column, Number)]

    @property
    def numeric_places(self) -> list[int]:
        """Places of the columns of numbers and dates among the encoded features."""
        found: list[int] = self._layout.columns.tolist()
        return found

    @cached_property
    def named(self) -> list[Category | Hashed]:
        """The columns of names."""
        return [column for column in self.columns if not isinstance(column, Number)]

    def encode(self, table: Table) -> tuple[Tensor, Tensor]:
        """Features of every row of a table, float `[n, d]`, and which rows are usable, bool `[n]`.

        Usable rows have the right number of cells, and a number or a gap in every numeric column; other rows
        are encoded as gaps. The table may have more columns than this encoder, in any order.
        """
        inputs, readable = self._encode(table)
        return inputs, table.fits & readable.all(1)

    def _encode(self, table: Table) -> tuple[Tensor, Tensor]:
        """Features of a table, and which of its numeric cells could be read; see `encode_cells`."""
        if any(isinstance(column, WrittenNumber) for column in self.numeric):
            matrix = torch.stack([column.values(table) for column in self.numeric], 1)
        else:
            matrix = table.matrix([column.name for column in self.numeric])
        named = [(column, table.names(column.name)) for column in self.named]
        return self.encode_cells(matrix, [column.lookup(cells.names)[cells.codes] for column, cells in named])

    def encode_cells(self, values: Tensor, places: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Features of cells that have been read.

        Args:
            values: Of the numeric columns, float64 `[n, numeric]`: NaN for gaps, infinite for other cells.
            places: For each column of names, which of its features is 1, int64 `[n]`; `GAP` for none.

        Returns:
            Features, float `[n, d]`, and which numeric cells could be read, bool `[n, numeric]`.
        """
        fill, mean, scale, reach, columns, starts = self._layout
        encoded = (torch.where(values.isfinite(), values, fill) - mean) / scale
        if bool(reach.isfinite().any()):
            encoded = torch.where(reach.isfinite(), squash(encoded, reach), encoded)
        encoded = encoded.float()  # infinite where it is too large for that
        readable = ~values.isinf() & encoded.isfinite()
        inputs = torch.zeros(len(values), len(self.feature_names))
        inputs[:, columns] = encoded.where(readable, 0.0)
        for start, place in zip(starts, places, strict=True):
            feature = (start + place.clamp(min=0)).unsqueeze(1)
            inputs.scatter_(1, feature, (place != GAP).float().unsqueeze(1))
        return inputs, readable

    @cached_property
    def _layout(self) -> _Layout:
        reach = [torch.inf if column.reach is None else column.reach for column in self.numeric]
        of = {key: [getattr(column, key) for column in self.numeric] for key in ("fill", "mean", "scale")}
        widths = torch.tensor([0, *(len(column.feature_names) for column in self.columns)]).cumsum(0).tolist()
        starts = list(zip(self.columns, widths, strict=False))
        columns = torch.tensor([start for column, start in starts if isinstance(column, Number)])
        fill, mean, scale, far = (
            torch.tensor(part, dtype=torch.float64) for part in (of["fill"], of["mean"], of["scale"], reach)
        )
        named = [start for column, start in starts if not isinstance(column, Number)]
        return _Layout(fill, mean, scale, far, columns.long(), named)

    def batches(self, path: Path) -> Iterator[NewRows]:
        """The rows of a file, some at a time, with its own columns."""
        head = next(read_batches(Path(path)))
        head.check_needed([column.name for column in self.columns])
        names = head.column_names
        for table in read_batches(Path(path), text=names):
            inputs, readable = self._encode(table)
            cells = {name: table.cells(name) for name in names}
            problems = [""] * len(table)
            for row in (~readable.all(1)).nonzero().flatten().tolist():
                column = self._unreadable(readable[row])
                problems[row] = _wrong(column, cells[column.name][row])
            for row in (~table.fits).nonzero().flatten().tolist():
                problems[row] = "it has more or fewer cells than the header"
            yield NewRows(cells, inputs, problems, self._unseen(table))

    def refuse_unreadable(self, table: Table) -> None:
        """Raise an error that names the rows that cannot be encoded, if there are any, and what is wrong."""
        _, readable = self._encode(table)
        bad = ~readable.all(1)
        if bool(bad.any()):
            row = int(bad.nonzero()[0])
            column = self._unreadable(readable[row])
            problem = _wrong(column, table.cells(column.name)[row])
            table.refuse_rows(bad, f"a cell that cannot be used, such as {problem}")

    def _unreadable(self, readable: Tensor) -> Number:
        """The first column whose cell could not be read."""
        return self.numeric[int((~readable).nonzero()[0])]

    def _unseen(self, table: Table) -> dict[str, tuple[int, str]]:
        """Columns with names that no training row has: in how many rows, and the first of them."""
        found = {}
        for column in self.named:
            if isinstance(column, Category):
                codes, names = table.names(column.name)
                new = column.lookup(names) == GAP
                new[-1] = False  # a gap
                if bool(new.any()):
                    count = int(new[codes].sum())
                    found[column.name] = (count, names[int(new.nonzero()[0])])
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, from which `from_json` makes the same encoder."""
        return {
            "kind": "columns",
            "columns": [column_to_json(column) for column in self.columns],
            **({"left_out": self.left_out} if self.left_out else {}),
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> ColumnEncoder:
        """The encoder that `to_json` wrote."""
        columns = tuple(column_from_json(**column) for column in data["columns"])
        return ColumnEncoder(columns, data.get("left_out", {}))


def _wrong(column: Number, cell: str) -> str:
    """What is wrong with a cell."""
    return f"column {column.name!r}: {shown(cell)} is not {column.cell}"


def plain_columns(names: Sequence[str], scale: float = 1.0) -> ColumnEncoder:
    """Numeric columns divided by `scale`, with 0 for gaps."""
    return ColumnEncoder(tuple(Number(name, scale=scale) for name in names))
