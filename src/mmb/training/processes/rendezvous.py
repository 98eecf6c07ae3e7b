"""How processes that were started together find each other, also when they are started again."""

import time
import uuid
from typing import Any

import torch.distributed as dist

_LOOK_EVERY = 0.02  # seconds


class ProcessError(Exception):
    """Processes cannot work together, or one was lost; the message says why."""


def fresh_store(store: Any, rank: int, size: int, seconds: float) -> Any:
    """A store without what earlier attempts left in it.

    torchrun keeps one store for all its restarts, with the addresses of processes that are gone; new ones
    would try to connect to them. So every process says hello under a new name. The main one answers each of
    them with a name for this attempt, until all have heard it. All else is kept under that name. A process
    that does not start within `seconds` is named by the `ProcessError`.
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
