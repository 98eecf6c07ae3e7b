"""Delimited text as tables; rows that do not fit the header are kept and marked."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from mmb._extras import require
from mmb.data.errors import DamagedDataError, MissingDataError, TableError
from mmb.data.files.table import TextTable

_BROKEN: tuple[type[Exception], ...] = (EOFError, gzip.BadGzipFile, zlib.error)  # what expanding raises
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # how compressed files start
_SEPARATORS = ";\t|"  # that are looked for where a header has no comma


def first_bytes(path: Path) -> bytes:
    """The first few bytes of a file, by which formats are told apart."""
    if not path.is_file():
        raise MissingDataError(
            f"the file {path.name}",
            [path.absolute()],
            "give the path of a table (a relative path starts at the current folder)",
        )
    with path.open("rb") as file:
        return file.read(8)


def is_compressed(path: Path) -> bool:
    """Whether a file is compressed by gzip or Zstandard."""
    return first_bytes(path).startswith((_GZIP, _ZSTD))


@contextmanager
def open_text(path: Path) -> Iterator[Any]:
    """Open a file of text for its bytes, expanding it if it is compressed by gzip or Zstandard."""
    start, broken = first_bytes(path), _BROKEN
    if start.startswith(_GZIP):
        file: Any = gzip.GzipFile(path)
    elif start.startswith(_ZSTD):
        zstandard = require("zstandard", extra="table")
        file, broken = io.BufferedReader(zstandard.open(path, "rb")), (*_BROKEN, zstandard.ZstdError)
    else:
        file = path.open("rb")
    with file:
        try:
            yield file
        except broken as error:
            raise DamagedDataError(path, f"it is cut short or broken ({error})", "copy it again") from error


def separator_of(path: Path, header: str) -> str:
    """What separates cells: tabs in a `.tsv` file, else commas, else what the header has most of."""
    if ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]]:
        return "\t"
    if "," in header:
        return ","
    best = max(_SEPARATORS, key=header.count)
    return best if best in header else ","


def column_names(path: Path, header: Sequence[str]) -> list[str]:
    """Names of the columns, which must differ; one without a name is called `Unnamed: 0`, by its place."""
    names = [cell.strip() or f"Unnamed: {place}" for place, cell in enumerate(header)]
    if not names or len(set(names)) != len(names):
        repeated = sorted({name for name in names if names.count(name) > 1})
        raise TableError(
            path,
            f"its header repeats {repeated}" if names else "it is empty",
            "give the file one header line with a different name for each column",
        )
    return names


def read_lines(
    path: Path,
    file: Iterable[bytes],
    names: list[str] | None = None,
    separator: str | None = None,
    *,
    first: int = 0,
    rows: int | None = None,
) -> Iterator[TextTable]:
    """Read a file of text, or the rest of one, in tables of some rows (one of all by default).

    Empty lines are skipped; a row with too many or too few cells is kept as a blank row and marked. There is
    always a table, even if it has no rows.

    Args:
        path: The file, for messages.
        file: Its lines, or those that are left.
        names: Names of the columns, if the header has been read.
        separator: What separates cells, if that is known.
        first: Number of data rows that have been read.
        rows: Of a table.
    """
    lines = _lines(path, file)
    if separator is None:
        header = next((line for line in lines if line.strip("\r\n")), "")
        separator, lines = separator_of(path, header), chain([header], lines)
    # Strict: a quote that is never closed would swallow all rows after it.
    reader = csv.reader(lines, delimiter=separator, strict=True)
    count, body = first, list[list[str]]()
    try:
        if names is None:
            names = column_names(path, next(filter(None, reader), []))
        for cells in reader:
            if cells:
                body.append(cells)
            if len(body) == rows:
                yield _table(path, names, body, count, separator)
                count, body = count + len(body), []
        if body or count == first:
            yield _table(path, names, body, count, separator)
    except csv.Error as error:
        row = f"data row {count + len(body) + 1}, counted from 1 after the header,"
        raise TableError(
            path,
            f"{row if names else 'its header'} cannot be read ({error})",
            "check its quotes, and save it as plain CSV in UTF-8",
        ) from error


def _table(path: Path, names: list[str], body: list[list[str]], first: int, separator: str) -> TextTable:
    fits = [len(cells) == len(names) for cells in body]
    blank = [""] * len(names)
    kept = [cells if fit else blank for cells, fit in zip(body, fits, strict=True)]
    columns = {name: [cells[j] for cells in kept] for j, name in enumerate(names)}
    fitting = torch.tensor(fits, dtype=torch.bool)
    return TextTable(path, columns, fitting, first=first, commas=separator == ";")


def _lines(path: Path, file: Iterable[bytes]) -> Iterator[str]:
    """Lines as text, without the mark that some programs put in front of the first."""
    number = 0
    try:
        for number, raw in enumerate(file, 1):
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            if "\r" in line.rstrip("\r\n"):
                yield from io.StringIO(line, newline="")  # files with line ends of their own
            else:
                yield line
    except UnicodeDecodeError as error:
        problem = f"line {number} is not UTF-8 ({error.reason}: {error.object[error.start]:#x})"
        raise TableError(path, problem, "save it as plain CSV in UTF-8") from error
