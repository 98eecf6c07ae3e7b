"""Large tables prepared for training: columns on disk, of which only the rows that are drawn are read."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Self

import torch
from torch import Tensor

from mmb._atomic_files import write_whole
from mmb._checksums import with_checksum, without_checksum
from mmb._extras import require
from mmb._threads import one_ahead, one_thread
from mmb.data.dataset import Progress
from mmb.data.errors import TableError
from mmb.data.files import cache
from mmb.data.files.table import GAP, Names, Table
from mmb.data.files.table_formats import read_batches
from mmb.data.inputs.columns import ColumnEncoder
from mmb.data.inputs.fit_columns import fit_columns
from mmb.data.inputs.label_reader import LabelReader

_COLUMNS = 8  # copied out of the rows at a time
_PIECE = 4096  # rows that are copied at a time
_IN_MEMORY = 1 << 24  # encoded numbers
_HOST = torch.device("cpu")


@dataclass(frozen=True)
class PreparedTable(Table):
    """Columns of a table on disk: rows of numbers, and rows of codes of names."""

    path: Path  # the first of the files it was made of
    values: Tensor  # float64 `[n, numbers]`, NaN for gaps
    codes: Tensor  # int32 `[n, names]`, `GAP` for gaps
    labels: Tensor  # int8 `[n, m]`
    facts: dict[str, Any]  # names of the columns, and the names they hold
    files: Sequence[tuple[Path, int]] = ()  # all of them, with their numbers of rows
    checksums: Sequence[str] = ()  # of values and codes
    first: int = 0
    taken: tuple[Table, Tensor] | None = None
    commas: bool = False
    _copied: list[Any] = field(default_factory=lambda: [None, None], repr=False)  # a place, columns from it
    _lock: Any = field(default_factory=Lock, repr=False, compare=False)

    @staticmethod
    def open(folder: Path) -> PreparedTable:
        """Open what `prepare_table` made."""
        arrays, facts = cache.read(folder)
        files = [(Path(path), rows) for path, rows in facts["files"]]
        checksums = [cache.checksums(folder)[name] for name in ("values", "codes")]
        values, codes, labels = (arrays[name] for name in ("values", "codes", "labels"))
        commas = facts.get("commas", False)
        return PreparedTable(files[0][0], values, codes, labels, facts, files, checksums, commas=commas)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns that were kept."""
        return [*self.facts["numbers"], *self.facts["names"]]

    def numbers(self, name: str) -> Tensor:
        """A column as float64 `[n]`; see `Table`."""
        if name in self.facts["names"]:
            return self.names(name).numbers(self.commas)
        self.check_column(name)
        place = self.facts["numbers"].index(name)
        start = place - place % _COLUMNS
        with self._lock:  # columns beside it are asked for next: rows are read once for all of them
            if self._copied[0] != start:
                self._copied[:] = [start, self._columns(start, start + _COLUMNS)]
            column: Tensor = self._copied[1][place - start]
            return column

    def _columns(self, start: int, stop: int) -> Tensor:
        """Some columns of numbers, `[columns, n]`, copied in pieces that a processor keeps at hand."""
        rows = self.values[:, start:stop].numpy()
        columns = torch.empty(rows.shape[1], len(rows), dtype=self.values.dtype)
        for first in range(0, len(rows), _PIECE):
            columns.numpy()[:, first : first + _PIECE] = rows[first : first + _PIECE].T
        return columns

    def names(self, name: str) -> Names:
        """A column as names; numbers with 17 digits, so that different ones have different names."""
        if name in self.facts["names"]:
            place = list(self.facts["names"]).index(name)
            return Names(self.codes[:, place].long(), self.facts["names"][name])
        found, codes = torch.unique(self.numbers(name), return_inverse=True)
        return Names(torch.where(found.isnan()[codes], GAP, codes), [f"{v:.17g}" for v in found.tolist()])

    def take(self, rows: Tensor) -> PreparedTable:
        """Some rows of this table, in memory."""
        values, codes, labels = (array[rows] for array in (self.values, self.codes, self.labels))
        taken = (self, rows)
        return PreparedTable(self.path, values, codes, labels, self.facts, taken=taken, commas=self.commas)


class TableRows:
    """Rows of a prepared table as model inputs, encoded when they are drawn."""

    def __init__(
        self, table: PreparedTable, encoder: ColumnEncoder, device: torch.device | str = _HOST
    ) -> None:
        self.table, self.encoder, self._device = table, encoder, torch.device(device)

    def __len__(self) -> int:
        return len(self.table)

    def to(self, device: torch.device) -> Self:
        """The same rows for another device; they stay on disk."""
        return type(self)(self.table, self.encoder, device)

    @property
    def identity(self) -> list[str]:
        """What tells these rows from others: checksums of what is on disk."""
        return list(self.table.checksums)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Encoded rows, float `[k, d]`, on the device."""
        rows = rows.to(_HOST)
        columns, dates, named = self._places
        values, codes = self.table.values[rows], self.table.codes[rows].long()
        if columns is not None:
            values = torch.cat([values, *(lookup[codes[:, [k]]] for k, lookup in dates)], 1)[:, columns]
        places = [lookup[codes[:, k]] for k, lookup in named]
        return self.encoder.encode_cells(values, places)[0].to(self._device, non_blocking=True)

    @cached_property
    def _places(self) -> tuple[Tensor | None, list[tuple[int, Tensor]], list[tuple[int, Tensor]]]:
        """Numeric columns among numbers and dates (None for all); of dates and names, what codes mean."""
        numbers, texts = self.table.facts["numbers"], self.table.facts["names"]

        def lookups(columns: Sequence[Any]) -> list[tuple[int, Tensor]]:
            return [(list(texts).index(c.name), c.lookup(texts[c.name])) for c in columns]

        dates = [column for column in self.encoder.numeric if column.name in texts]
        order = [*numbers, *(column.name for column in dates)]
        columns = [order.index(column.name) for column in self.encoder.numeric]
        everything = columns == list(range(len(numbers)))
        return None if everything else torch.tensor(columns), lookups(dates), lookups(self.encoder.named)


def prepare_table(
    folder: Path,
    paths: Sequence[Path],
    columns: Sequence[str],
    tasks: Sequence[str],
    text: Sequence[str],
    progress: Progress | None = None,
    positive: str | Sequence[str] | None = None,
) -> Path:
    """Read tables, one after the other, into a cache folder.

    Args:
        folder: Of the cache.
        paths: Files or folders of files.
        columns: Columns to keep. Those with a cell that is neither a number nor blank are kept as names.
        tasks: Label columns.
        text: Columns that are kept as names in any case.
        progress: Called with the number of rows that are done.
        positive: Cells of labels that mean positive, if they are not 1; see `read_labels`.
    """
    kept_as_text = set(text)
    with one_thread():
        while found := _write(
            folder, paths, columns, LabelReader(tasks, positive), tasks, kept_as_text, progress
        ):
            kept_as_text |= found
    return folder


class _TextFound(Exception):
    """Columns of numbers turn out to have names."""


def _write(
    folder: Path,
    paths: Sequence[Path],
    columns: Sequence[str],
    read_labels: LabelReader,
    tasks: Sequence[str],
    text: set[str],
    progress: Progress | None,
) -> set[str]:
    """Write the cache; if columns that are not `text` have names in them, nothing but these columns."""
    numeric, named = ([c for c in columns if (c in text) is kind] for kind in (False, True))
    places = {name: dict[str, int]() for name in named}
    files: list[list[Any]] = []  # paths, and numbers of rows
    commas = True
    sizes = []  # rows of each of `paths`

    def arrays(table: Table) -> tuple[Table, dict[str, Any]]:
        table.refuse_misfits()
        values = table.matrix(numeric).numpy()
        infinite = np.isinf(values)
        if infinite.any():
            raise _TextFound({numeric[place] for place in infinite.any(0).nonzero()[0]})
        codes, labels = _codes(table, places), read_labels(table)
        return table, {"values": values, "codes": codes.numpy(), "labels": labels.numpy()}

    np = require("numpy", extra="training")
    try:
        with cache.writing(folder) as writer:
            for path in paths:
                before = sum(rows for _, rows in files)
                batches = read_batches(path, [*columns, *tasks], text)
                with one_ahead(batches) as tables, one_ahead(map(arrays, tables)) as prepared:
                    for table, parts in prepared:
                        for name, rows in parts.items():
                            writer.append(name, rows)
                        commas &= table.commas
                        files += [[str(table.path), 0]] if table.first == 0 else []
                        files[-1][1] += len(table)
                        if progress is not None:
                            progress(sum(rows for _, rows in files), 0)
                sizes.append(sum(rows for _, rows in files) - before)
                if not sizes[-1]:
                    raise TableError(path, "it has a header and no rows", "give it rows to train on")
            read_labels.finish()
            names = {name: list(known) for name, known in places.items()}
            writer.facts |= {
                "numbers": numeric,
                "names": names,
                "files": files,
                "sizes": sizes,
                "commas": commas,
            }
    except _TextFound as found:
        return set(found.args[0])
    return set()


def _codes(table: Table, places: dict[str, dict[str, int]]) -> Tensor:
    """Codes of the names of some rows, int32 `[n, names]`; new names are added to `places`."""
    columns = [torch.empty(len(table), 0, dtype=torch.int32)]
    for column, known in places.items():
        codes, names = table.names(column)
        lookup = torch.tensor([*(known.setdefault(name, len(known)) for name in names), GAP])
        columns.append(lookup[codes].to(torch.int32).unsqueeze(1))
    return torch.cat(columns, 1)


def fitted_columns(
    folder: Path, table: PreparedTable, names: Sequence[str], rows: Tensor, leave_out: bool
) -> ColumnEncoder:
    """The encoder of columns for these training rows; it is kept beside the cache."""
    digest = hashlib.sha256(json.dumps([*names, *[None] * leave_out]).encode())
    digest.update(rows.contiguous().numpy().data)
    key = digest.hexdigest()[:12]
    kept = folder.with_name(f"{folder.name}-{key}.json")
    try:
        return ColumnEncoder.from_json(without_checksum(json.loads(kept.read_text(encoding="utf-8"))))
    except (OSError, ValueError, KeyError, TypeError):
        encoder = fit_columns(table, names, rows, leave_out=leave_out)
        with suppress(OSError):  # a cache that others may read only: fitted again next time
            write_whole(kept, json.dumps(with_checksum(encoder.to_json())))
        return encoder


def encode_rows(
    folder: Path, table: PreparedTable, names: Sequence[str], rows: Tensor, leave_out: bool
) -> tuple[Tensor | TableRows, ColumnEncoder]:
    """Columns as model inputs, and their encoder, fitted to training rows; see `fit_columns`."""
    encoder = fitted_columns(folder, table, names, rows, leave_out)
    return encoded(table, encoder), encoder


def encoded(table: PreparedTable, encoder: ColumnEncoder) -> Tensor | TableRows:
    """The rows of a table as model inputs, in memory if they are few."""
    few = len(table) * len(encoder.feature_names) <= _IN_MEMORY
    return encoder.encode(table)[0] if few else TableRows(table, encoder)


def remove_old(folder: Path) -> None:
    """Remove what was prepared of earlier versions of the same table."""
    name, _, _ = folder.name.partition("-")
    for old in folder.parent.glob(f"{name}-*"):
        if not old.name.startswith(folder.name):
            shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)
