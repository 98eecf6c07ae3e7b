"""Training in many processes: who they are, what they must agree on, and what only one of them does.

Start them with `torchrun`; each runs the same command. Without it there is one process, and nothing here does
anything. The folder of the run must be the same for all of them, on machines with a shared file system.
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
    """The processes that train together.

    Attributes:
        rank: Number of this one.
        size: How many there are.
    """

    rank: int = 0
    size: int = 1

    @classmethod
    def of_this_process(cls) -> Ranks:
        """As `torch.distributed` knows them."""
        return cls(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else cls()

    @property
    def is_main(self) -> bool:
        """Whether this is the one that logs and writes."""
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
        """The value that the main process has, on each of them."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def main_first(self, make: Callable[[], _T]) -> _T:
        """Make something in the main process first, so that the others find what it leaves on the disk."""
        if self.is_main:
            made = make()
            self.barrier()
            return made
        self.barrier()
        return make()

    @contextmanager
    def one_per_machine_first(self) -> Iterator[None]:
        """What one process of each machine prepares, such as data on its disk, the others find there."""
        first = int(os.environ.get("LOCAL_RANK", "0")) == 0
        if not first:
            self.barrier()
        yield
        if first:
            self.barrier()

    def rows(self, count: int) -> slice:
        """This process's share of so many rows."""
        sizes = self._sizes(count)
        start = sum(sizes[: self.rank])
        return slice(start, start + sizes[self.rank])

    def gather_rows(self, values: Tensor, count: int) -> Tensor:
        """All rows, from each process's share of them."""
        return values if self.size == 1 else gather_rows(values, self._sizes(count))

    def _sizes(self, count: int) -> list[int]:
        return [count // self.size + (rank < count % self.size) for rank in range(self.size)]


ONE = Ranks()
"""One process alone."""


@contextmanager
def joined(device: torch.device) -> Iterator[Ranks]:
    """Join the other processes that `torchrun` started, if it did: NCCL between GPUs, gloo between CPUs.

    Whoever joined a group already stays in it. A process that waits for another longer than `MMB_TIMEOUT`
    seconds (1800 by default) gives up.

    Args:
        device: Where this process computes; of several GPUs each process takes its own.

    Raises:
        ProcessError: If another process is lost or does not come or answer in time, there are too few GPUs,
            or `MMB_TIMEOUT` is not a number.
    """
    started = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized()
    seconds = _timeout()
    if started and device.type == "cuda":
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if local >= torch.cuda.device_count():
            raise ProcessError(
                f"process {local} of this machine has no GPU of its own: there are "
                f"{torch.cuda.device_count()}; start as many processes, or set training.device=cpu"
            )
        torch.cuda.set_device(local)
    if started:
        backend, timeout = (
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            timedelta(seconds=seconds),
        )
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
            f"process {ranks.rank} of {ranks.size}: another process {lost}. Its own output says why, if "
            f"anything does; training continues from the last checkpoint with `mmb resume`, or by itself "
            f"with torchrun --max-restarts. Who waits longer than MMB_TIMEOUT={seconds:g} seconds gives up"
        ) from error
    finally:
        if started:
            dist.destroy_process_group()


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
    """What happened to another process, if an error tells that."""
    text = message.lower()
    if "timed out" in text or "timeout" in text:
        return "did not answer in time"
    if any(
        word in text for word in ("closed by peer", "connection reset", "broken pipe", "connection refused")
    ):
        return "has ended"
    return None
