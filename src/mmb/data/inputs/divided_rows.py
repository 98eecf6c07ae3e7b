"""Rows of a folder of tables divided among processes: each opens its own files, and rows travel as drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from mmb.data.dataset import Inputs
from mmb.data.errors import TableError
from mmb.data.files.table import GAP, Names, Table
from mmb.data.files.table_formats import table_files
from mmb.data.inputs.columns import ColumnEncoder
from mmb.data.inputs.fit_columns import fit_columns
from mmb.data.inputs.quartiles import Spread
from mmb.data.inputs.table_cache import PreparedTable, encoded
from mmb.distributed import gather_rows

_HOST = torch.device("cpu")


def own_files(path: Path) -> list[Path]:
    """The files of a folder that this process opens: as many as any other, up to one."""
    files, (rank, size) = table_files(path), _place()
    if len(files) < size:
        raise TableError(
            path,
            f"it has {len(files)} files for {size} processes",
            "write it as a folder of at least as many files, or start fewer processes",
        )
    return files[rank * len(files) // size : (rank + 1) * len(files) // size]


@dataclass(frozen=True)
class DividedTable(Table):
    """A table whose rows are divided, in order; every process must ask for the same columns in turn."""

    path: Path  # the folder
    own: PreparedTable  # the rows of this process
    sizes: Sequence[int]  # rows of each process
    files: Sequence[tuple[Path, int]]  # of all processes
    first: int = 0
    taken: tuple[Table, Tensor] | None = None

    @staticmethod
    def open(path: Path, prepare: Callable[[Sequence[str]], Path]) -> DividedTable:
        """Open the table after every process has prepared its part.

        Args:
            path: The folder.
            prepare: Makes the cache of this process, with some columns kept as names.
        """
        own = PreparedTable.open(prepare([]))
        names = list(dict.fromkeys(name for part in _gather(list(own.facts["names"])) for name in part))
        if set(names) - set(own.facts["names"]):  # numbers here are names elsewhere
            own = PreparedTable.open(prepare(names))
        files = [file for part in _gather(list(own.files)) for file in part]
        return DividedTable(path, own, _gather(len(own)), files)

    def __len__(self) -> int:
        return sum(self.sizes)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns that were kept."""
        return self.own.column_names

    @property
    def labels(self) -> Tensor:
        """Labels of all rows, int8 `[n, m]`."""
        return _gather_rows(self.own.labels, self.sizes)

    def numbers(self, name: str) -> Tensor:
        """A column as float64 `[n]`; see `Table`."""
        return _gather_rows(self.own.numbers(name), self.sizes)

    def names(self, name: str) -> Names:
        """A column as names."""
        codes, own = self.own.names(name)
        places: dict[str, int] = {}
        for part in _gather(own):
            for found in part:
                places.setdefault(found, len(places))
        lookup = torch.tensor([*(places[found] for found in own), GAP])
        return Names(_gather_rows(lookup[codes], self.sizes), list(places))

    def take(self, rows: Tensor) -> DividedTable:
        """Some rows of this table, in order, of which each process keeps its own."""
        before = [0, *accumulate(self.sizes)]
        starts = torch.searchsorted(rows, torch.tensor(before))
        here = slice(*starts[_place()[0] :][:2].tolist())
        own = self.own.take(rows[here] - before[_place()[0]])
        return DividedTable(self.path, own, starts.diff().tolist(), (), taken=(self, rows))

    def encode_rows(
        self, names: Sequence[str], rows: Tensor, leave_out: bool, spread: Spread
    ) -> tuple[DividedRows, ColumnEncoder]:
        """Columns as model inputs, and their encoder, fitted to training rows of all processes."""
        encoder = fit_columns(self, names, rows, threads=1, leave_out=leave_out, spread=spread)
        width = len(encoder.feature_names)
        return DividedRows(encoded(self.own, encoder), width, self.sizes, file_versions(self.path)), encoder


class DividedRows:
    """Model inputs of rows that are divided; every process must ask at the same time, for any rows.

    Args:
        own: Rows of this process, on the host.
        width: Features of a row.
        sizes: Number of rows of each process.
        identity: What tells all of these rows from others.
        device: Where model inputs go.
    """

    def __init__(
        self,
        own: Inputs,
        width: int,
        sizes: Sequence[int],
        identity: list[Any],
        device: torch.device | str = _HOST,
    ) -> None:
        self.own, self.width, self.sizes, self.identity = own, width, sizes, identity
        self._device = torch.device(device)
        self._ends = torch.tensor(list(accumulate(sizes)))

    def __len__(self) -> int:
        return sum(self.sizes)

    def to(self, device: torch.device) -> Self:
        """The same rows for another device; they stay where they are."""
        return type(self)(self.own, self.width, self.sizes, self.identity, device)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Encoded rows of any processes, float `[k, d]`, on the device."""
        return self._exchange(rows, last=False)[0]

    def stream(
        self, batches: Iterable[Tensor], generator: torch.Generator | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs of rows and model input; a process with fewer batches serves the others to their end."""
        for rows in batches:
            yield rows, self._exchange(rows, last=False)[0]
        while not self._exchange(torch.empty(0, dtype=torch.int64), last=True)[1]:
            pass

    def _exchange(self, rows: Tensor, last: bool) -> tuple[Tensor, bool]:
        """The inputs of rows, and whether all processes have had their last ones."""
        rows, size = rows.to(_HOST), len(self.sizes)
        if size == 1:
            return self.own[rows].to(self._device, non_blocking=True), last
        owner = torch.bucketize(rows, self._ends, right=True)
        order = owner.argsort(stable=True)
        counts = torch.bincount(owner, minlength=size)
        told, words = torch.empty(size, 2, dtype=torch.int64), torch.tensor([last]).expand(size)
        dist.all_to_all_single(told, torch.stack([counts, words], 1))
        wanted = (rows - (self._ends - torch.tensor(self.sizes))[owner])[order]
        given, taken = told[:, 0].tolist(), counts.tolist()
        asked = torch.empty(sum(given), dtype=torch.int64)
        dist.all_to_all_single(asked, wanted, given, taken)
        received = torch.empty(len(rows), self.width)
        dist.all_to_all_single(received, self.own[asked], taken, given)
        found = torch.empty_like(received)
        found[order] = received
        return found.to(self._device, non_blocking=True), bool(told[:, 1].all())


def file_versions(path: Path) -> list[Any]:
    """Names, sizes and times of change of the files of a table: the same for any division."""
    return [[file.name, (stat := file.stat()).st_size, stat.st_mtime_ns] for file in table_files(path)]


def _place() -> tuple[int, int]:
    """The number of this process, and how many there are."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def _gather(value: Any) -> list[Any]:
    """The values of all processes, by rank."""
    values: list[Any] = [value] * _place()[1]
    if len(values) > 1:
        dist.all_gather_object(values, value)
    return values


def _gather_rows(rows: Tensor, sizes: Sequence[int]) -> Tensor:
    """The rows of all processes, in order."""
    return gather_rows(rows, sizes) if len(sizes) > 1 else rows
