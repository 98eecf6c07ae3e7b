"""Tables of any format: CSV, TSV, gz, zst, Parquet, Arrow, and folders of them."""

import importlib.util
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path

import torch

from mmb.data.errors import TableError
from mmb.data.files.delimited_text import first_bytes, open_text, read_lines
from mmb.data.files.table import Table, TextTable

_SUFFIXES = (".csv", ".tsv", ".txt", ".gz", ".zst", ".parquet", ".arrow", ".feather", ".ipc")
_PARQUET, _ARROW, _ZIP = b"PAR1", b"ARROW1", b"PK\x03\x04"  # how such files start
_ROWS = 1 << 15  # of a batch


def table_files(path: Path) -> list[Path]:
    """The files of a table: the file itself, or those of a folder, by name."""
    if not path.is_dir():
        return [path]
    files = sorted(f for f in path.iterdir() if f.is_file() and not f.name.startswith((".", "_")))
    unknown = [f.name for f in files if f.suffix.lower() not in _SUFFIXES]
    if unknown or not files:
        raise TableError(
            path,
            f"the folder has {unknown[0]!r}, which is not a table by its name" if unknown else "it is empty",
            "give a folder with nothing but tables (CSV, TSV, .gz, .zst, Parquet, Arrow) of the same columns",
        )
    return files


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
        for name in columns or ():
            head.check_column(name)
        if columns is None:
            columns = head.column_names  # of the other files too
        yield from chain([head], batches)


def _file_batches(path: Path, columns: Collection[str] | None, text: Collection[str]) -> Iterator[Table]:
    start = first_bytes(path)
    if start.startswith(_ZIP):
        raise TableError(path, "it is a zip archive or a workbook", "save it as CSV or Parquet")
    if start.startswith((_PARQUET, _ARROW)):
        from mmb.data.files import frames

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
    return not path.is_dir() and not first_bytes(path).startswith((_PARQUET, _ARROW, _ZIP))


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
