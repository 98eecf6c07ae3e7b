"""The kinds of columns of a table, and how the cells of each become numbers."""

import re
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor

from mmb.data.files.table import GAP, Table

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

    @property
    def cell(self) -> str:
        """What a cell has to be."""
        return "a number that can be used"

    def values(self, table: Table) -> Tensor:
        """The column of a table, float64 `[n]`: NaN for gaps, infinite for what is not a number."""
        return table.numbers(self.name)


@dataclass(frozen=True)
class WrittenNumber(Number):
    """A column of cells that stand for numbers, but are written otherwise."""

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
        try:
            moment = datetime.fromisoformat(cell)
        except ValueError:
            return torch.inf
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() / _DAY


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


Column = Number | Category | Hashed
"""Any of them."""


def column_to_json(column: Column) -> dict[str, Any]:
    """Plain JSON, from which `column_from_json` makes the same column."""
    return {**asdict(column), **({"date": True} if isinstance(column, Date) else {})}


def column_from_json(categories: Sequence[str] | None = None, date: bool = False, **facts: Any) -> Column:
    """The column that `column_to_json` wrote."""
    facts["name"] = facts["name"] or "Unnamed: 0"  # earlier versions left an index without a name
    if categories is not None:
        return Category(facts["name"], tuple(categories))
    if "buckets" in facts:
        return Hashed(**facts)
    if "before" in facts:
        return Amount(**facts)
    return Date(**facts) if date else Number(**facts)
