"""The processes that train together: how they join, and what they exchange.

Start them with `torchrun`; each runs the same command. Without it there is one process, and nothing here does
anything. All of them need the same folder of the run; machines need a shared file system.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from mmb.distributed import gather_rows
from mmb.training.processes.rendezvous import ProcessError, fresh_store

_T = TypeVar("_T")


@dataclass(frozen=True)
class Ranks:
    """The processes that train together."""

    rank: int = 0  # number of this one
    size: int = 1  # how many there are

    @classmethod
    def of_this_process(cls) -> Ranks:
        """Those of `torch.distributed`."""
        return cls(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else cls()

    @property
    def is_main(self) -> bool:
        """Whether this is the process that logs and writes."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier()

    def gather(self, value: _T) -> list[_T]:
        """The values of all processes, by rank, on each of them."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def from_main(self, value: _T) -> _T:
        """The value of the main process, on each of them."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def main_first(self, make: Callable[[], _T]) -> _T:
        """Make something in the main process first, so that the others find what it leaves on the disk."""
        return self._in_turn(self.is_main, make)

    def one_per_machine_first(self, make: Callable[[], _T]) -> _T:
        """The same with one process of each machine, for what it leaves on its own disk."""
        return self._in_turn(_number_on_this_machine() == 0, make)

    def _in_turn(self, first: bool, make: Callable[[], _T]) -> _T:
        if not first:
            self.barrier()
        made = make()
        if first:
            self.barrier()
        return made

    def rows(self, count: int) -> slice:
        """This process's share of `count` rows."""
        sizes = self._sizes(count)
        start = sum(sizes[: self.rank])
        return slice(start, start + sizes[self.rank])

    def gather_rows(self, values: Tensor, count: int) -> Tensor:
        """All rows, from each process's share of them."""
        return values if self.size == 1 else gather_rows(values, self._sizes(count))

    def _sizes(self, count: int) -> list[int]:
        return [count // self.size + (rank < count % self.size) for rank in range(self.size)]


ONE = Ranks()  # a single process


@contextmanager
def joined(device: torch.device) -> Iterator[Ranks]:
    """Join the other processes of `torchrun`, if any: NCCL between GPUs, one for each process, else gloo.

    A process that is in a group already stays in it. Raises a `ProcessError` if another process ends, or
    does not come or answer within `MMB_TIMEOUT` seconds (1800 by default).
    """
    started = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized()
    seconds, backend = _timeout(), "gloo"
    if started and device.type == "cuda":
        number, gpus = _number_on_this_machine(), torch.cuda.device_count()
        if number >= gpus:
            raise ProcessError(
                f"process {number} of this machine has no GPU: there are {gpus}; "
                "start as many processes, or set training.device=cpu"
            )
        torch.cuda.set_device(number)
        backend = "cpu:gloo,cuda:nccl"
    if started:
        timeout = timedelta(seconds=seconds)
        store, rank, size = next(rendezvous("env://", timeout=timeout))
        store = fresh_store(store, rank, size, seconds)
        dist.init_process_group(backend, timeout=timeout, store=store, rank=rank, world_size=size)
    ranks = Ranks.of_this_process()
    try:
        yield ranks
    except RuntimeError as error:
        lost = _lost(str(error))
        if ranks.size == 1 or lost is None:
            raise
        raise ProcessError(
            f"process {ranks.rank} of {ranks.size}: another process {lost}; its output may say why. "
            f"`mmb resume` continues from the last checkpoint; torchrun --max-restarts does so by itself. "
            f"A process waits for another for MMB_TIMEOUT={seconds:g} seconds"
        ) from error
    finally:
        if started:
            dist.destroy_process_group()


def _number_on_this_machine() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def _timeout() -> float:
    text = os.environ.get("MMB_TIMEOUT", "1800")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:  # what a duration can hold
        raise ProcessError(f"MMB_TIMEOUT: expected a number of seconds, got {text!r}")
    return seconds


def _lost(message: str) -> str | None:
    """What happened to another process, if an error says so."""
    text = message.lower()
    if "timed out" in text or "timeout" in text:
        return "did not answer in time"
    ended = ("closed by peer", "connection reset", "broken pipe", "connection refused")
    return "has ended" if any(words in text for words in ended) else None
