"""Table columns as numbers: gaps filled, numbers standardized, categories one-hot, all of it remembered."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmb._names import shown
from mmb.data.dataset import NewRows
from mmb.data.files.table import GAP, Table
from mmb.data.files.table_formats import read_batches
from mmb.data.inputs.quartiles import squash

_DAY = 86400.0  # seconds
_AMOUNT = re.compile(
    r"([+-]?)\s*([$€£¥]?)\s*((?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d*)?|\.\d+)\s*([^\s\d.,][^\s\d,]{0,7})?"
)


@dataclass(frozen=True)
class Number:
    """A numeric column: `(value - mean) / scale`, `fill` for a gap; it levels off at `reach`, if given."""

    name: str
    fill: float = 0.0
    mean: float = 0.0
    scale: float = 1.0
    reach: float | None = None

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return (self.name,)

    def values(self, table: Table) -> Tensor:
        """The column of a table, float64 `[n]`: NaN for gaps, infinite for what is not a number."""
        return table.numbers(self.name)


@dataclass(frozen=True)
class WrittenNumber(Number):
    """A column of cells that stand for numbers, but are written otherwise."""

    @property
    def cell(self) -> str:
        """What a cell has to be."""
        raise NotImplementedError

    def read(self, cell: str) -> float:
        """The number that a cell stands for, infinite if none."""
        raise NotImplementedError

    def values(self, table: Table) -> Tensor:
        """The column of a table, float64 `[n]`: NaN for gaps, infinite for what cannot be read."""
        codes, names = table.names(self.name)
        return self.lookup(names)[codes]

    def lookup(self, names: Sequence[str]) -> Tensor:
        """The value of each name, and last that of a gap."""
        return torch.tensor([*map(self.read, names), torch.nan], dtype=torch.float64)


@dataclass(frozen=True)
class Date(WrittenNumber):
    """A column of dates, as days since 1970; otherwise like numbers."""

    @property
    def cell(self) -> str:
        """What a cell has to be."""
        return "a date"

    def read(self, cell: str) -> float:
        """Days since 1970."""
        return _day(cell)


@dataclass(frozen=True)
class Amount(WrittenNumber):
    """A column of numbers that all have the same sign before or unit after them, as in €1,200 or 14 %."""

    before: str = ""
    after: str = ""

    @property
    def cell(self) -> str:
        """What a cell has to be."""
        return f"a number written like {self.before}12{self.after}"

    @staticmethod
    def signs(cell: str) -> tuple[str, str] | None:
        """What is before and after the number in a cell; None if this is not a number with a sign or unit."""
        found = _AMOUNT.fullmatch(cell)
        if found is None or not (found[2] or found[4]):
            return None
        # a comma in 1,200 could be a decimal one, unless it is in money
        return (found[2], found[4] or "") if found[2] or "," not in found[3] else None

    def read(self, cell: str) -> float:
        """The number alone."""
        found = _AMOUNT.fullmatch(cell)
        if found is None or self.signs(cell) != (self.before, self.after):
            return torch.inf
        return float(found[1] + found[3].replace(",", ""))


@dataclass(frozen=True)
class Category:
    """A column of names: one-hot over the categories seen in training; a gap or a new name is all zeros."""

    name: str
    categories: tuple[str, ...]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return tuple(f"{self.name}={category}" for category in self.categories)

    def lookup(self, names: Sequence[str]) -> Tensor:
        """The feature that is 1 for each name, `GAP` if there is none, and last that of a gap."""
        index = {category: place for place, category in enumerate(self.categories)}
        return torch.tensor([*(index.get(name, GAP) for name in names), GAP])


@dataclass(frozen=True)
class Hashed:
    """A column of very many names: one-hot over `buckets`, to which names go by their checksum."""

    name: str
    buckets: int

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return tuple(f"{self.name}#{bucket}" for bucket in range(self.buckets))

    def lookup(self, names: Sequence[str]) -> Tensor:
        """The feature that is 1 for each name, and last that of a gap."""
        return torch.tensor([*(zlib.crc32(name.encode()) % self.buckets for name in names), GAP])


class _Layout(NamedTuple):
    """Of the numeric columns how they are scaled and where they are among the features; where names start."""

    fill: Tensor
    mean: Tensor
    scale: Tensor
    reach: Tensor
    columns: Tensor
    names: list[int]


def _day(name: str) -> float:
    try:
        moment = datetime.fromisoformat(name)
    except ValueError:
        return torch.inf
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() / _DAY


@dataclass(frozen=True)
class ColumnEncoder:
    """The columns of a table as one float matrix, the same for every file."""

    # how each column is encoded, in the order of the encoded features
    columns: tuple[Number | Category | Hashed, ...]
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
            "columns": [
                {**asdict(column), **({"date": True} if isinstance(column, Date) else {})}
                for column in self.columns
            ],
            **({"left_out": self.left_out} if self.left_out else {}),
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> ColumnEncoder:
        """The encoder that `to_json` wrote."""
        columns = tuple(_column_from_json(**column) for column in data["columns"])
        return ColumnEncoder(columns, data.get("left_out", {}))


def _wrong(column: Number, cell: str) -> str:
    """What is wrong with a cell."""
    kind = column.cell if isinstance(column, WrittenNumber) else "a number that can be used"
    return f"column {column.name!r}: {shown(cell)} is not {kind}"


def _column_from_json(
    categories: Sequence[str] | None = None, date: bool = False, **facts: Any
) -> Number | Category | Hashed:
    facts["name"] = facts["name"] or "Unnamed: 0"  # earlier versions left an index without a name
    if categories is not None:
        return Category(facts["name"], tuple(categories))
    if "buckets" in facts:
        return Hashed(**facts)
    if "before" in facts:
        return Amount(**facts)
    return Date(**facts) if date else Number(**facts)


def plain_columns(names: Sequence[str], scale: float = 1.0) -> ColumnEncoder:
    """Numeric columns divided by `scale`, with 0 for gaps."""
    return ColumnEncoder(tuple(Number(name, scale=scale) for name in names))
