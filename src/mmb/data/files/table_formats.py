"""Tables of any format: CSV, TSV, gz, zst, Parquet, Arrow, and folders of them."""

import importlib.util
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path

import torch

from mmb._names import TABLE_SUFFIXES
from mmb.data.errors import TableError
from mmb.data.files import arrow_streams
from mmb.data.files.delimited_text import first_bytes, open_text, read_lines
from mmb.data.files.table import Table, TextTable

_PARQUET, _ARROW = b"PAR1", b"ARROW1"  # how such files start
_BINARY = (_PARQUET, _ARROW, arrow_streams.START)
_ROWS = 1 << 15  # of a batch
_ALIKE = "give a folder with nothing but tables (CSV, TSV, .gz, .zst, Parquet, Arrow) of the same columns"


def table_files(path: Path) -> list[Path]:
    """The files of a table: the file itself, or those of a folder, by name."""
    if not path.is_dir():
        return [path]
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith((".", "_")))
    files = [entry for entry in entries if not entry.is_dir()]
    unknown = [f.name for f in files if f.suffix.lower() not in TABLE_SUFFIXES]
    if unknown:
        raise TableError(path, f"the folder has {unknown[0]!r}, which is not a table by its name", _ALIKE)
    for folder in entries:
        if folder.is_dir() and (inner := _first_table(folder)):
            raise TableError(
                path,
                f"the folder has a folder {folder.name!r} with tables in it, such as {inner}",
                "put all tables into one folder (what the names of folders say, as in part=1, is not read: "
                "write it as a column), or give the path of one of them",
            )
    if not files:
        raise TableError(path, "it is empty", _ALIKE)
    for file in files:
        if not file.is_file():  # a link to nowhere
            first_bytes(file)
    return files


def _first_table(folder: Path) -> Path | None:
    """The path of a table in a folder or the folders in it, from that folder."""
    inner = (file.relative_to(folder) for file in folder.rglob("*") if file.suffix.lower() in TABLE_SUFFIXES)
    return next((file for file in inner if not any(p.startswith((".", "_")) for p in file.parts)), None)


def read_batches(
    path: Path, columns: Collection[str] | None = None, text: Collection[str] = ()
) -> Iterator[Table]:
    """Read a table some rows at a time, in order; there is always a batch, even if it has no rows.

    Args:
        path: A file, or a folder of files with the same columns. Its format is known by its first bytes.
        columns: The columns to read, all by default; they must be there.
        text: Columns of which names are needed, even if they are numbers.

    Raises:
        DataError: If the file is missing, is not a table, or lacks a column.
    """
    for file in table_files(Path(path)):
        batches = _file_batches(file, columns, text)
        head = next(batches)
        if columns is None:
            columns = head.column_names  # of the other files too
        elif missing := [name for name in columns if name not in head.column_names]:
            next(_file_batches(file, None, ())).check_column(missing[0])  # with all columns of the file
        yield from chain([head], batches)


def _file_batches(path: Path, columns: Collection[str] | None, text: Collection[str]) -> Iterator[Table]:
    start = first_bytes(path)
    if start.startswith(_BINARY):
        from mmb.data.files import frames

        if start.startswith(arrow_streams.START):
            yield from frames.read_stream(path, columns)
        else:
            yield from frames.read_columnar(path, start.startswith(_PARQUET), columns)
    else:
        with open_text(path) as file:
            if importlib.util.find_spec("polars"):
                from mmb.data.files import frames

                yield from frames.read_text(path, file, columns, text)
            else:
                yield from read_lines(path, file, rows=_ROWS)


def is_text(path: Path) -> bool:
    """Whether a path is a file of text, which may be compressed."""
    return not path.is_dir() and not first_bytes(path).startswith(_BINARY)


def read_table(path: Path) -> TextTable:
    """Read all of a table as text."""
    path = Path(path)
    if is_text(path):
        with open_text(path) as file:
            return next(read_lines(path, file))
    batches = list(read_batches(path))
    columns = {
        name: [cell for batch in batches for cell in batch.cells(name)] for name in batches[0].column_names
    }
    return TextTable(path, columns, torch.cat([batch.fits for batch in batches]))


def read_training_table(path: Path) -> TextTable:
    """Read a table as text; it must have rows, all of which fit the header."""
    table = read_table(path)
    if not len(table):
        raise TableError(path, "it has a header and no rows", "give it rows to train on")
    table.refuse_misfits()
    return table
