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
from mmb.data.files.other_formats import START, refuse_other_formats
from mmb.data.files.table import TextTable
from mmb.data.files.zstd_streams import open_zstd

_BROKEN: tuple[type[Exception], ...] = (EOFError, gzip.BadGzipFile, zlib.error)  # what expanding raises
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # how compressed files start
_SEPARATORS = ";\t|"  # that are looked for where a header has no comma


def first_bytes(path: Path) -> bytes:
    """The first few bytes of a file, by which formats are told apart."""
    if path.exists() and not path.is_file():
        raise TableError(path, "it is neither a file nor a folder", "write the table to a file")
    if not path.is_file():
        link = f" (a link to {path.readlink()}, where there is no file)" if path.is_symlink() else ""
        raise MissingDataError(
            f"the file {path.name}{link}",
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
        file, broken = open_zstd(path), (*_BROKEN, require("zstandard", extra="table").ZstdError)
    else:
        file = path.open("rb")
    with file:
        try:
            refuse_other_formats(path, file.peek(START)[:START], start.startswith((_GZIP, _ZSTD)))
            yield file
        except broken as error:
            raise DamagedDataError(path, f"it is cut short or broken ({error})", "copy it again") from error


def separator_of(path: Path, header: str) -> str:
    """What separates cells: tabs in a `.tsv` file with any, else commas, else what a header has most of."""
    if "\t" in header and ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]]:
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
            "give the file one header line with a different name for each column"
            + ("" if names else ", and rows"),
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
    lines = _lines(file)
    count, body = first, list[list[str]]()
    try:
        if separator is None:
            header = next((line for line in lines if line.strip("\r\n")), "")
            separator, lines = separator_of(path, header), chain([header], lines)
        # Strict: a quote that is never closed would swallow all rows after it.
        reader = csv.reader(lines, delimiter=separator, strict=True)
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
    except (csv.Error, UnicodeDecodeError) as error:
        row = f"data row {count + len(body) + 1}, counted from 1 after the header," if names else "its header"
        problem, remedy = f"cannot be read ({error})", "check its quotes, and save it as plain CSV in UTF-8"
        if isinstance(error, UnicodeDecodeError):
            problem = f"is not UTF-8{_column_of(error, names or [], separator)}"
            remedy = "save it as plain CSV in UTF-8"
        raise TableError(path, f"{row} {problem}", remedy) from error


def _column_of(error: UnicodeDecodeError, names: list[str], separator: str | None) -> str:
    """Where in a line the byte is that cannot be read, as far as that is certain, for a message."""
    line, byte = error.object, f" (byte {error.object[error.start]:#x})"
    sign = (separator or ",").encode()
    if b'"' in line or line.count(sign) + 1 != len(names):
        return byte
    return f" in column {names[line[: error.start].count(sign)]!r}{byte}"


def _table(path: Path, names: list[str], body: list[list[str]], first: int, separator: str) -> TextTable:
    fits = [len(cells) == len(names) for cells in body]
    blank = [""] * len(names)
    kept = [cells if fit else blank for cells, fit in zip(body, fits, strict=True)]
    columns = {name: [cells[j] for cells in kept] for j, name in enumerate(names)}
    fitting = torch.tensor(fits, dtype=torch.bool)
    return TextTable(path, columns, fitting, first=first, commas=separator == ";")


def _lines(file: Iterable[bytes]) -> Iterator[str]:
    """Lines as text, without the mark that some programs put in front of the first."""
    for number, raw in enumerate(file):
        line = raw.decode("utf-8" if number else "utf-8-sig")
        if "\r" in line.rstrip("\r\n"):
            yield from io.StringIO(line, newline="")  # files with line ends of their own
        else:
            yield line
