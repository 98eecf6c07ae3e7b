"""Tables read by polars: blocks of text, Parquet and Arrow."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from mmb._cell_words import BLANK
from mmb._extras import require
from mmb.data.errors import DamagedDataError, TableError
from mmb.data.files.arrow_streams import single_batches
from mmb.data.files.delimited_text import read_lines, separator_of
from mmb.data.files.table import GAP, Names, Table, as_names, number

_pl = require("polars", extra="table")
_FAILED = (_pl.exceptions.PolarsError, _pl.exceptions.PanicException)  # the second is no Exception
_BLOCK = 1 << 24  # bytes of text read at a time
_FIRST_BLOCK = 1 << 18  # which is often all that is looked at
_SMALL_BLOCK = 1 << 21  # where cells are kept as text, which takes many times as much memory
_ROWS = 1 << 16  # of a batch of other formats
_BLANKS = [form for cell in sorted(BLANK) for form in dict.fromkeys((cell, cell.upper(), cell.title()))]


@dataclass(frozen=True)
class FrameTable(Table):
    """Columns of a polars frame; those of text are strings, and all others numbers."""

    path: Path
    frame: Any
    first: int = 0
    commas: bool = False

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in the order of the file."""
        return list(self.frame.columns)

    def numbers(self, name: str) -> Tensor:
        """A column as float64 `[n]`; see `Table`."""
        column = self._column(name)
        if column.dtype != _pl.String:
            return torch.tensor(column.cast(_pl.Float64).to_numpy())  # gaps become NaN
        text = column.str.strip_chars()
        values = text.cast(_pl.Float64, strict=False)
        odd = text.filter(values.is_null() & text.is_not_null()).unique()
        if len(odd):
            meaning = [number(cell, self.commas) for cell in odd]
            values = values.fill_null(
                text.replace_strict(odd, meaning, default=None, return_dtype=_pl.Float64)
            )
        return torch.tensor(values.to_numpy())

    def names(self, name: str) -> Names:
        """A column as names."""
        text = self._column(name).cast(_pl.String)
        found = text.unique(maintain_order=True).drop_nulls()
        codes, names = as_names(found)
        place = text.cast(_pl.Enum(found)).to_physical().cast(_pl.Int64).fill_null(len(found))
        return Names(torch.cat([codes, codes.new_tensor([GAP])])[torch.tensor(place.to_numpy())], names)

    def matrix(self, names: Sequence[str]) -> Tensor:
        """Columns side by side, float64 `[n, d]`; see `Table`."""
        chosen = [self._column(name) for name in names]
        if not chosen or not all(column.dtype.is_numeric() for column in chosen):
            return super().matrix(names)
        frame = _pl.DataFrame([column.cast(_pl.Float64) for column in chosen])
        return torch.from_numpy(frame.to_numpy(order="c", writable=True))

    def cells(self, name: str) -> list[str]:
        """A column as text."""
        self.check_column(name)
        if self.unusable(name):
            return ["" if cell is None else str(cell) for cell in self.frame[name].to_list()]
        found: list[str] = self._column(name).cast(_pl.String).fill_null("").to_list()
        return found

    def unusable(self, name: str) -> str:
        """Why the cells of a column can be neither numbers nor names; empty if they can."""
        kind = self.frame[name].dtype
        nested = kind.is_nested() or kind in (_pl.Binary, _pl.Object)
        return f"it holds {kind}, expected numbers, text or dates" if nested else ""

    def _column(self, name: str) -> Any:
        self.check_column(name)
        if problem := self.unusable(name):
            remedy = "leave it out, or write it as columns of its own"
            raise TableError(self.path, f"column {name!r} cannot be used: {problem}", remedy)
        column = self.frame[name]
        if column.dtype == _pl.Duration:
            return column.dt.total_microseconds() / 1e6  # seconds
        return column if column.dtype.is_numeric() else column.cast(_pl.String)


def read_text(
    path: Path, file: IO[bytes], columns: Collection[str] | None, text: Collection[str]
) -> Iterator[Table]:
    """Read delimited text in blocks; see `read_batches`.

    A block without quotes, whose lines all have as many cells as the header, is read by polars. Others are
    read line by line, and so is all that follows a quote, since a quoted cell may hold line ends.
    """
    head = file.readline()
    header = next(iter(read_lines(path, [head])), None) if head.strip() and b'"' not in head else None
    if header is None:
        yield from read_lines(path, chain([head], file), rows=_ROWS)
        return
    names, separator = header.column_names, separator_of(path, head.decode("utf-8-sig"))
    read_block = BlockReader(path, names, separator, columns, text)
    first, size = 0, _BLOCK if set(names) - set(text) else min(_BLOCK, _SMALL_BLOCK)
    while block := file.read(size if first else min(size, _FIRST_BLOCK)):
        block += file.readline()
        if b'"' in block:
            rest = chain(BytesIO(block), file)
            yield from read_lines(path, rest, names, separator, first=first, rows=_ROWS)
            return
        table: Table | None = read_block(block, first)
        if table is None:
            table = next(read_lines(path, BytesIO(block), names, separator, first=first))
        first += len(table)
        yield table
    if not first:
        yield header


class BlockReader:
    """Reads whole lines of text without quotes, if they have as many cells as there are columns."""

    def __init__(
        self,
        path: Path,
        names: list[str],
        separator: str,
        columns: Collection[str] | None,
        text: Collection[str],
    ) -> None:
        self._path, self._separator = path, separator
        self._strings = dict.fromkeys(names, _pl.String)
        self._mixed = {name: _pl.String if name in text else _pl.Float64 for name in names}
        self._wanted = [place for place, name in enumerate(names) if columns is None or name in columns]
        self._blank: list[str] | None = None  # cells that mean a gap; looking for them takes time

    def __call__(self, block: bytes, first: int) -> FrameTable | None:
        """The table of a block; None if its lines have other numbers of cells."""
        size = np.frombuffer(block, np.uint8)
        lines = int(np.count_nonzero(size == ord("\n"))) + (not block.endswith(b"\n"))
        cells = int(np.count_nonzero(size == ord(self._separator))) + lines
        if len(self._strings) == 1 or cells != lines * len(self._strings):
            return None
        if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
            return None
        tries = [
            (self._mixed, self._blank, False),
            (self._mixed, _BLANKS, False),
            (self._strings, None, False),
        ]
        if self._separator == ";":
            tries.insert(2, (self._mixed, _BLANKS, True))
        for schema, blank, commas in tries:
            try:
                frame = _pl.read_csv(
                    block,
                    has_header=False,
                    schema=schema,
                    columns=self._wanted,
                    separator=self._separator,
                    quote_char=None,
                    null_values=blank,
                    decimal_comma=commas,
                )
            except _FAILED:  # a cell that is not a number, a line with more cells, no more open files
                continue
            self._blank = blank
            commas = self._separator == ";"
            return FrameTable(self._path, frame, first, commas) if len(frame) == lines else None
        return None


def read_columnar(path: Path, parquet: bool, columns: Collection[str] | None) -> Iterator[Table]:
    """Read Parquet or Arrow in batches; see `read_batches`."""
    with _reading(path):
        source = _pl.scan_parquet(path, glob=False) if parquet else _pl.scan_ipc(path)
        schema = source.collect_schema()
        wanted = [name for name in schema if columns is None or name in columns]
        rows, read = source.select(_pl.len()).collect().item(), 0
        source = source.select(wanted)
        batches = source.collect_batches(chunk_size=_ROWS, maintain_order=True)
        for table in _numbered(path, chain([source.head(0).collect()], batches)):
            yield table
            read += len(table)
        if read != rows:  # polars may stop at damage without an error
            raise _pl.exceptions.ComputeError(f"only {read} of its {rows} rows")


def read_stream(path: Path, columns: Collection[str] | None) -> Iterator[Table]:
    """Read an Arrow stream in batches; see `read_batches`."""
    with _reading(path):
        frames = (_pl.read_ipc_stream(BytesIO(stream)) for stream in single_batches(path))
        slices = (
            piece.select([name for name in piece.columns if columns is None or name in columns])
            for frame in frames
            for piece in (frame.iter_slices(_ROWS) if len(frame) else [frame])
        )
        yield from _numbered(path, slices)


def _numbered(path: Path, frames: Iterable[Any]) -> Iterator[Table]:
    """Frames of a file, in order, as tables; those without rows are left out, unless all are."""
    first, empty = 0, None
    for frame in frames:
        if len(frame):
            yield FrameTable(path, frame, first)
            first += len(frame)
        else:
            empty = frame
    if not first:
        yield FrameTable(path, empty)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (*_FAILED, OSError) as error:
        problem = f"it cannot be read ({str(error).splitlines()[0]})"
        raise DamagedDataError(path, problem, "write the file again") from error
