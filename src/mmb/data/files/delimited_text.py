"""Delimited text as columns of strings; rows that do not fit the header are kept and marked."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mmb.data.errors import DamagedDataError, MissingDataError

BLANK = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""Cells, in lower case, that mean "not known"."""


def is_blank(cell: str) -> bool:
    """Whether a cell says that its value is not known."""
    return cell.strip().lower() in BLANK


@dataclass(frozen=True)
class TextTable:
    """The cells of a delimited file."""

    path: Path  # the file it was read from
    columns: dict[str, list[str]]  # cells of each column by its name, in file order
    fits: list[bool]  # whether each row had as many cells as the header; other rows are blank throughout

    def column(self, name: str) -> list[str]:
        """The cells of one column; an error for a missing one lists all columns."""
        if name not in self.columns:
            raise DamagedDataError(
                self.path,
                f"it has no column {name!r}; its columns are {list(self.columns)}",
                "name one of these columns, or add it to the file",
            )
        return self.columns[name]

    def refuse_rows(self, bad: Sequence[bool], problem: str) -> None:
        """Raise an error that names the first bad rows, if there are any."""
        rows = [row + 1 for row, is_bad in enumerate(bad) if is_bad]
        if rows:
            raise DamagedDataError(
                self.path,
                f"{len(rows)} rows have {problem} (data rows {rows[:5]}, counted from 1 after the header)",
                "correct or remove those rows",
            )


def read_table(path: Path) -> TextTable:
    """Read a CSV file (or, if its name ends in `.tsv`, a tab-separated one) with a header line.

    Empty lines are skipped; a row with too many or too few cells is kept as a blank row and marked.
    """
    if not path.is_file():
        raise MissingDataError(
            f"the file {path.name}",
            [path.absolute()],
            "give the path of a CSV file (a relative path starts at the current folder)",
        )
    dialect = csv.excel_tab if path.suffix == ".tsv" else csv.excel
    lines: list[list[str]] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            # Strict: a quote that is never closed would swallow all rows after it.
            lines.extend(cells for cells in csv.reader(file, dialect, strict=True) if cells)
    except UnicodeDecodeError as error:
        raise DamagedDataError(path, str(error), "save it as plain CSV in UTF-8") from error
    except csv.Error as error:
        where = f"data row {len(lines)}, counted from 1 after the header," if lines else "its header"
        raise DamagedDataError(
            path, f"{where} cannot be read ({error})", "check its quotes, and save it as plain CSV in UTF-8"
        ) from error
    header, body = (lines[0], lines[1:]) if lines else ([], [])
    names = [cell.strip() for cell in header]
    if not names or len(set(names)) != len(names):
        repeated = sorted({name for name in names if names.count(name) > 1})
        raise DamagedDataError(
            path,
            f"its header repeats {repeated}" if names else "it is empty",
            "give the file one header line with a different name for each column",
        )
    fits = [len(cells) == len(names) for cells in body]
    blank: Sequence[str] = [""] * len(names)
    rows = [cells if fit else blank for cells, fit in zip(body, fits, strict=True)]
    columns = {name: [cells[j] for cells in rows] for j, name in enumerate(names)}
    return TextTable(path, columns, fits)


def read_training_table(path: Path) -> TextTable:
    """Read a table that must have rows, all of which fit the header."""
    table = read_table(path)
    if not table.fits:
        raise DamagedDataError(path, "it has a header and no rows", "give it rows to train on")
    table.refuse_rows([not fits for fits in table.fits], "a different number of cells than the header")
    return table
