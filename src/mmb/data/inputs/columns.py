"""Table columns as numbers: gaps filled, numbers standardized, categories one-hot, all of it remembered."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmb.data.errors import DamagedDataError
from mmb.data.files.delimited_text import TextTable, is_blank, read_table
from mmb.data.inputs.quartiles import REACH, quartile_deviation, squash

_FAR = 1e4  # times the width of the middle half: cells this far out would flatten all others
_CODES = 20  # with more different cells, most of them numbers, a column is not taken for codes


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

    def encode(self, cells: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Encoded values `[n, 1]` and which cells could be read `[n]`."""
        values = numbers(cells)
        filled = torch.where(values.isfinite(), values, self.fill)
        encoded = (filled - self.mean) / self.scale
        if self.reach is not None:
            encoded = squash(encoded, self.reach)
        encoded = encoded.float()  # infinite where it is too large for that
        readable = ~values.isinf() & encoded.isfinite()
        return encoded.where(readable, 0.0).unsqueeze(1), readable


@dataclass(frozen=True)
class Category:
    """A column of names: one-hot over the categories seen in training; a gap or a new name is all zeros."""

    name: str
    categories: tuple[str, ...]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return tuple(f"{self.name}={category}" for category in self.categories)

    def encode(self, cells: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Encoded values `[n, categories]` and which cells could be read `[n]` (all of them)."""
        index, width = {category: j for j, category in enumerate(self.categories)}, len(self.categories)
        codes = torch.tensor([index.get(cell.strip(), width) for cell in cells], dtype=torch.int64)
        one_hot = torch.nn.functional.one_hot(codes, width + 1)[:, :width]
        return one_hot.float(), torch.ones(len(cells), dtype=torch.bool)


def numbers(cells: Sequence[str]) -> Tensor:
    """Cells as float64 `[n]`: NaN where blank, infinite where not a finite number."""
    return torch.tensor([_number(cell) for cell in cells], dtype=torch.float64)


def _number(cell: str) -> float:
    try:
        return float(cell) if "_" not in cell else math.inf  # Python reads 1_20 as 120, but it is a code
    except ValueError:
        return math.nan if is_blank(cell) else math.inf


@dataclass(frozen=True)
class ColumnEncoder:
    """The columns of a table as one float matrix, the same for every file."""

    columns: tuple[Number | Category, ...]  # how each column is encoded, in the order of the encoded features

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Name of each encoded feature; a category's features are called `column=category`."""
        return tuple(name for column in self.columns for name in column.feature_names)

    def encode(self, table: TextTable) -> tuple[Tensor, Tensor]:
        """Features of every row of a table, float `[n, d]`, and which rows are usable, bool `[n]`.

        Usable rows have the right number of cells, and a number or a gap in every numeric column; other rows
        are encoded as gaps. The table may have more columns than this encoder, in any order.
        """
        parts = [column.encode(table.column(column.name)) for column in self.columns]
        usable = torch.tensor(table.fits, dtype=torch.bool)
        for _, readable in parts:
            usable = usable & readable
        return torch.cat([values for values, _ in parts], 1), usable

    def read(self, path: Path) -> tuple[Tensor, Tensor]:
        """Encode every row of a file; see `encode`."""
        return self.encode(read_table(Path(path)))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, from which `from_json` makes the same encoder."""
        return {"kind": "columns", "columns": [asdict(column) for column in self.columns]}

    @staticmethod
    def from_json(data: dict[str, Any]) -> ColumnEncoder:
        """The encoder that `to_json` wrote."""
        return ColumnEncoder(
            tuple(
                Category(column["name"], tuple(column["categories"]))
                if "categories" in column
                else Number(**column)
                for column in data["columns"]
            )
        )


def plain_columns(names: Sequence[str], scale: float = 1.0) -> ColumnEncoder:
    """Numeric columns divided by `scale`, with 0 for gaps."""
    return ColumnEncoder(tuple(Number(name, scale=scale) for name in names))


def fit_columns(table: TextTable, names: Sequence[str], rows: Tensor) -> ColumnEncoder:
    """Learn how to encode columns from the training rows alone.

    A column whose filled cells are all numbers is standardized with its mean and standard deviation (by its
    quartiles, and leveling off, where a cell is so far out that nothing would be left of the others), and
    its median fills gaps; any other column is one-hot over the names it holds.
    """
    chosen = rows.tolist()
    return ColumnEncoder(tuple(_fit(table, name, chosen) for name in names))


def _fit(table: TextTable, name: str, rows: list[int]) -> Number | Category:
    column = table.column(name)
    cells = [cell for row in rows if not is_blank(cell := column[row])]
    if not cells:
        raise DamagedDataError(
            table.path, f"column {name!r} is blank in every training row", "leave it out of the features"
        )
    values = numbers(cells)
    if bool(values.isfinite().all()):
        # A scale of 1 keeps a constant column at zero.
        mean, spread = float(values.mean()), float(values.std(correction=0))
        if not math.isfinite(spread):
            raise DamagedDataError(
                table.path,
                f"column {name!r} has numbers as large as {float(values.abs().max()):g}",
                "correct those cells, or leave it out of the features",
            )
        ordered, middle = values.sort().values, float(values.median())
        low, high = float(ordered[len(cells) // 4]), float(ordered[3 * len(cells) // 4])
        furthest = int((values - middle).abs().argmax())
        if abs(float(values[furthest]) - middle) > _FAR * (high - low) > 0:
            warnings.warn(
                f"{table.path}: column {name!r} has {cells[furthest]} in data row "
                f"{column.index(cells[furthest]) + 1}, where half of its cells lie from {low:g} to {high:g}: "
                f"cells that far out count as {REACH:g} deviations; blank them if they stand for a gap",
                stacklevel=2,
            )
            return Number(name, middle, middle, quartile_deviation(low, high), REACH)
        return Number(name, middle, mean, spread or 1.0)
    categories = sorted({cell.strip() for cell in cells})
    finite = values.isfinite()
    if len(categories) > _CODES and 2 * int(finite.sum()) > len(cells):
        cell = cells[int((~finite).nonzero()[0])]
        raise DamagedDataError(
            table.path,
            f"column {name!r} has numbers, but {cell!r} in data row {column.index(cell) + 1}",
            "correct such cells or blank them, or leave the column out of the features",
        )
    if len(categories) > 50 and 2 * len(categories) > len(cells):
        raise DamagedDataError(
            table.path,
            f"column {name!r} has {len(categories)} different names in {len(cells)} training rows "
            f"(for example {categories[0]!r}), so it looks like an identifier or free text",
            "leave it out of the features, or correct the cells that should be numbers",
        )
    return Category(name, tuple(categories))
