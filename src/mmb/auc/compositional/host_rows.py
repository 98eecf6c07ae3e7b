"""Rows of a matrix in host memory, moved to and from the device while it computes."""

import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(eq=False)
class _Ahead:
    """Rows that are being read."""

    numbers: Tensor  # on the host
    rows: Tensor  # on the device, in the dtype of the matrix
    read: Any = None  # event after the last read, on a GPU


class HostRows:
    """Reads and writes rows of a matrix in host memory, for a computation on a device.

    For a GPU the matrix `[m, P]` is locked in memory, and rows travel on a separate stream, while the GPU
    computes. Transfers keep their order, and rows that are written after they were read ahead (`prefetch`)
    are read again, so `gather` always returns what was written last. Others may change the matrix between
    calls, after `wait`. Row numbers are int64 `[k]` on the host.
    """

    def __init__(self, matrix: Tensor, device: torch.device) -> None:
        self.matrix, self.device = matrix, device
        self._stream: Any = None
        if device.type == "cuda":
            _lock_pages(matrix)
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._ahead: deque[_Ahead] = deque(maxlen=2)  # of this step, and of the next
        self._version = matrix._version

    def prefetch(self, numbers: Tensor) -> None:
        """Start reading rows for a later `gather` of the same numbers."""
        self._forget_if_changed()
        self._ahead.append(self._start(numbers))

    def gather(self, numbers: Tensor) -> Tensor:
        """The rows `[k, P]`, on the device, which the caller may change."""
        self._forget_if_changed()
        found = next((ahead for ahead in self._ahead if torch.equal(ahead.numbers, numbers)), None)
        if found is None:
            found = self._start(numbers)  # rows that were read ahead may be for later
        else:
            self._ahead.remove(found)
        if found.read is not None:
            torch.cuda.current_stream(self.device).wait_event(found.read)
        return found.rows

    def scatter_(self, numbers: Tensor, rows: Tensor) -> None:
        """Write rows `[k, P]`, which must not change afterwards; call `wait` before the host reads them."""
        self._forget_if_changed()
        rows = rows.to(self.matrix.dtype)
        if self._stream is None:
            self.matrix.index_copy_(0, numbers, rows)
        else:
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
            rows.record_stream(self._stream)
            with torch.cuda.stream(self._stream):
                # one transfer per row: gathering them first would cost more
                for place, number in enumerate(numbers.tolist()):
                    self.matrix[number].copy_(rows[place], non_blocking=True)
        for ahead in self._ahead:
            self._read(ahead, torch.isin(ahead.numbers, numbers).nonzero().squeeze(1))
        self._version = self.matrix._version

    def wait(self) -> None:
        """Wait until everything written is in the matrix."""
        if self._stream is not None:
            self._stream.synchronize()

    def _start(self, numbers: Tensor) -> _Ahead:
        if self._stream is None:
            return _Ahead(numbers, self.matrix.index_select(0, numbers))
        rows = self.matrix.new_empty(len(numbers), self.matrix.shape[1], device=self.device)
        self._stream.wait_stream(torch.cuda.current_stream(self.device))  # which may still use this memory
        rows.record_stream(self._stream)
        started = _Ahead(numbers, rows, torch.cuda.Event())  # type: ignore[no-untyped-call]
        self._read(started, torch.arange(len(numbers)))
        return started

    def _read(self, ahead: _Ahead, places: Tensor) -> None:
        numbers = ahead.numbers[places]
        if self._stream is None:
            ahead.rows.index_copy_(0, places, self.matrix.index_select(0, numbers))
            return
        with torch.cuda.stream(self._stream):
            for place, number in zip(places.tolist(), numbers.tolist(), strict=True):
                ahead.rows[place].copy_(self.matrix[number], non_blocking=True)
            ahead.read.record()

    def _forget_if_changed(self) -> None:
        """Drop rows that were read ahead if someone else has written to the matrix since."""
        if self.matrix._version != self._version:
            self._ahead.clear()
            self._version = self.matrix._version


def _lock_pages(matrix: Tensor) -> None:
    """Lock the memory of a tensor, so that a GPU can reach it; torch would round it up to a power of two."""
    if matrix.numel() == 0 or matrix.is_pinned():
        return
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address, size = matrix.data_ptr(), matrix.numel() * matrix.element_size()
    failure = int(runtime.cudaHostRegister(address, size, 0))
    if failure:
        raise RuntimeError(
            f"{size:,} bytes of host memory could not be locked for the GPU (CUDA error {failure}): leave "
            "more of the machine's memory free, or store the copies on the device with copies_device=null"
        )
    weakref.finalize(matrix, runtime.cudaHostUnregister, address).atexit = False
