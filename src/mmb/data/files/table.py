"""A table as columns of numbers and names, whatever file it comes from."""

from __future__ import annotations

import difflib
import math
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from mmb._cell_words import BLANK
from mmb._names import first_few, shown
from mmb.data.errors import TableError

GAP = -1
"""The code of a blank cell."""
_SHOWN = 12  # columns, in a message
_FEW = 2  # columns, which may be the wrong first line, or the wrong separator


def _listed(names: Sequence[str]) -> str:
    return first_few([*map(shown, names[:_SHOWN]), *names[_SHOWN:]], _SHOWN)


def is_blank(cell: str) -> bool:
    """Whether a cell says that its value is not known."""
    return cell.strip().lower() in BLANK


def number(cell: str, commas: bool = False) -> float:
    """A cell as a number: NaN if it is blank, infinite if it is not a finite number.

    With `commas`, 1,5 is a number too, as where semicolons separate cells.
    """
    if commas and cell.count(",") == 1:
        cell = cell.replace(",", ".") if "." not in cell else "-"
    try:
        return (
            float(cell.strip()) if "_" not in cell else math.inf
        )  # Python reads 1_20 as 120, but it is a code
    except ValueError:
        return math.nan if is_blank(cell) else math.inf


def numbers(cells: Sequence[str], commas: bool = False) -> Tensor:
    """Cells as float64 `[n]`: NaN where blank, infinite where not a finite number; see `number`."""
    return torch.tensor([number(cell, commas) for cell in cells], dtype=torch.float64)


class Names(NamedTuple):
    """A column of names, each kept once."""

    codes: Tensor  # int64 `[n]`: the place of each row's name in the list, `GAP` for a blank cell
    names: list[str]  # without spaces around them

    def numbers(self, commas: bool = False) -> Tensor:
        """The names as numbers, float64 `[n]`; see `numbers`."""
        return numbers([*self.names, ""], commas)[self.codes]  # a gap is the last of them


class Table(ABC):
    """Rows of cells by column: a whole file, or the next rows of one.

    Attributes:
        path: The file.
        first: Number of rows of the file before these.
        files: The files with their numbers of rows, if there are several.
        taken: The table that these rows were taken from, and which of its rows they are.
        commas: Whether 1,5 is a number, as where semicolons separate cells.
    """

    path: Path
    first: int
    commas: bool = False
    files: Sequence[tuple[Path, int]] = ()
    taken: tuple[Table, Tensor] | None = None

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows."""

    @property
    def fits(self) -> Tensor:
        """Which rows have as many cells as the header, bool `[n]`; other rows are blank throughout."""
        return torch.ones(len(self), dtype=torch.bool)

    @property
    @abstractmethod
    def column_names(self) -> list[str]:
        """Names of the columns, in the order of the file."""

    @abstractmethod
    def numbers(self, name: str) -> Tensor:
        """A column as float64 `[n]`: NaN where blank, infinite where not a finite number."""

    @abstractmethod
    def names(self, name: str) -> Names:
        """A column as names."""

    def cells(self, name: str) -> list[str]:
        """A column as text."""
        codes, names = self.names(name)
        return ["" if code == GAP else names[code] for code in codes.tolist()]

    def matrix(self, names: Sequence[str]) -> Tensor:
        """Columns side by side, float64 `[n, d]`; see `numbers`."""
        if not names:
            return torch.empty(len(self), 0, dtype=torch.float64)
        return torch.stack([self.numbers(name) for name in names], 1)

    def take(self, rows: Tensor) -> Table:
        """Some rows of this table."""
        return SomeRows(self, rows)

    def locate(self, row: int) -> tuple[Path, int]:
        """The file of a row, and its number in that file, from 1 after the header."""
        if self.taken is not None:
            whole, chosen = self.taken
            return whole.locate(int(chosen[row]))
        for path, rows in self.files:
            if row < rows:
                return path, row + 1
            row -= rows
        return self.path, self.first + row + 1

    def check_column(self, name: str, option: str | None = None) -> None:
        """Raise an error that lists all columns, if this is none of them, as an option of the data says."""
        if name not in self.column_names:
            near = difflib.get_close_matches(
                name.lower(), lower := [n.lower() for n in self.column_names], 1, 0.75
            )
            likely = self.column_names[lower.index(near[0])] if near else "NAME"
            key = "" if option is None else f" (data.{option}={likely})"
            twin = f" (the nearest is {likely!r})" if near else ""
            few = len(self.column_names) <= _FEW
            hint = "; or let its first line name all columns, with commas, semicolons or tabs" if few else ""
            raise TableError(
                self.path,
                f"it has no column {name!r}; its columns are {_listed(self.column_names)}{twin}",
                f"name one of these columns{key}, or add it to the file{hint}",
            )

    def check_needed(self, names: Sequence[str]) -> None:
        """Raise an error that lists what is missing, unless all columns that a model takes are there."""
        missing = [name for name in names if name not in self.column_names]
        if missing:
            raise TableError(
                self.path,
                f"it lacks {_listed(missing)}, which the model was trained on; its columns are "
                f"{_listed(self.column_names)}",
                "add what is missing, under the same names (case counts); cells may be blank",
            )

    def unusable(self, name: str) -> str:
        """Why the cells of a column can be neither numbers nor names; empty if they can."""
        return ""

    def without(self, name: str) -> str:
        """How to do without a column, for messages."""
        return f"leave the column out of the features ({shlex.quote(f'data.drop={name}')})"

    def refuse_rows(self, bad: Tensor | Sequence[bool], problem: str, option: str | None = None) -> None:
        """Raise an error that names the first bad rows, if any, and the option for another column."""
        rows = torch.as_tensor(bad).nonzero().flatten().tolist()
        if rows:
            path, _ = self.locate(rows[0])
            shown = [row for file, row in map(self.locate, rows[:5]) if file == path]
            have = "1 row has" if len(rows) == 1 else f"{len(rows)} rows have"
            raise TableError(
                path,
                f"{have} {problem} (data rows {shown}, counted from 1 after the header)",
                "correct or remove those rows"
                + (f", or name another column (data.{option}=NAME)" if option else ""),
            )

    def refuse_misfits(self) -> None:
        """Raise an error that names the first rows with more or fewer cells than the header."""
        self.refuse_rows(~self.fits, "a different number of cells than the header")


class SomeRows(Table):
    """Some rows of a table."""

    def __init__(self, whole: Table, rows: Tensor) -> None:
        self.path, self.first, self.taken, self.commas = whole.path, 0, (whole, rows), whole.commas
        self._whole, self._rows = whole, rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def fits(self) -> Tensor:
        """Which rows have as many cells as the header."""
        return self._whole.fits[self._rows]

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        return self._whole.column_names

    def numbers(self, name: str) -> Tensor:
        """A column as float64 `[n]`; see `Table`."""
        return self._whole.numbers(name)[self._rows]

    def names(self, name: str) -> Names:
        """A column as names."""
        codes, names = self._whole.names(name)
        return Names(codes[self._rows], names)


@dataclass(frozen=True)
class TextTable(Table):
    """Cells as they are in a file of text."""

    path: Path
    columns: dict[str, list[str]]  # cells of each column by its name, in file order
    fitting: Tensor  # which rows fit
    first: int = 0
    files: Sequence[tuple[Path, int]] = ()
    commas: bool = False

    def __len__(self) -> int:
        return len(self.fitting)

    @property
    def fits(self) -> Tensor:
        """Which rows have as many cells as the header, bool `[n]`."""
        return self.fitting

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in the order of the file."""
        return list(self.columns)

    def cells(self, name: str) -> list[str]:
        """A column as text."""
        self.check_column(name)
        return self.columns[name]

    def numbers(self, name: str) -> Tensor:
        """A column as float64 `[n]`; see `Table`."""
        return numbers(self.cells(name), self.commas)

    def names(self, name: str) -> Names:
        """A column as names."""
        return as_names(self.cells(name))


def joined(tables: Sequence[TextTable], names: Sequence[str]) -> TextTable:
    """Some columns of tables, one below the other."""
    columns = {
        name: [cell for table in tables for cell in table.cells(name)] for name in dict.fromkeys(names)
    }
    fits = torch.cat([table.fits for table in tables])
    files = [(table.path, len(table)) for table in tables]
    return TextTable(tables[0].path, columns, fits, files=files, commas=all(table.commas for table in tables))


def as_names(cells: Iterable[str]) -> Names:
    """Cells as names, in the order in which they come first."""
    places: dict[str, int] = {}
    known: dict[str, int] = {}  # of each cell, understood once
    codes = []
    for cell in cells:
        code = known.get(cell)
        if code is None:
            name = cell.strip()
            code = known[cell] = GAP if is_blank(name) else places.setdefault(name, len(places))
        codes.append(code)
    return Names(torch.tensor(codes, dtype=torch.int64), list(places))
