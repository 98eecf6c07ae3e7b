"""How processes that were started together find each other, also when they are started again."""

from __future__ import annotations

import time
import uuid
from typing import Any

import torch.distributed as dist

_LOOK_EVERY = 0.02  # seconds


class ProcessError(Exception):
    """Processes cannot work together, or one was lost; the message says why."""


def fresh_store(store: Any, rank: int, size: int, seconds: float) -> Any:
    """A store without what earlier attempts left in it.

    torchrun keeps one store for all its restarts, and in it the addresses of processes that are gone, to
    which new ones would connect in vain. So every process says hello under a new name; the main one answers
    each by that name with a name for this attempt, until all have heard it; all else is kept under that one.

    Args:
        store: The store (`torch.distributed.Store`) of the processes and those before them.
        rank: Number of this process.
        size: How many there are.
        seconds: How long to wait for the others.

    Returns:
        A part of the store that is new.

    Raises:
        ProcessError: If a process does not come in time, naming it.
    """
    own = uuid.uuid4().hex
    if rank > 0:
        store.set(f"hello/{rank}", own)
        try:
            attempt = store.get(f"attempt/{own}").decode()
        except RuntimeError as error:
            raise ProcessError(f"process {rank} of {size}: process 0 did not start in time") from error
        store.set(f"heard/{attempt}/{rank}", "")
        return dist.PrefixStore(attempt, store)  # type: ignore[attr-defined]
    missing, deadline = set(range(1, size)), time.monotonic() + seconds
    while missing:
        for other in missing:
            if store.check([f"hello/{other}"]):
                store.set(f"attempt/{store.get(f'hello/{other}').decode()}", own)
        missing = {other for other in missing if not store.check([f"heard/{own}/{other}"])}
        if missing and time.monotonic() > deadline:
            raise ProcessError(
                f"processes {sorted(missing)} of {size} did not start within {seconds:g} seconds"
            )
        time.sleep(_LOOK_EVERY)
    return dist.PrefixStore(own, store)  # type: ignore[attr-defined]
