"""Processes find each other, and not those that were there before them."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from mmb.training.processes.rendezvous import ProcessError, fresh_store


def meet(store, size, seconds=20.0):
    """What each of several processes (threads here) gets; errors are among it."""
    found = {}

    def come(rank):
        try:
            found[rank] = fresh_store(store, rank, size, seconds)
        except ProcessError as error:
            found[rank] = error

    threads = [threading.Thread(target=come, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(size)]


def test_every_attempt_has_a_store_of_its_own():
    store = dist.HashStore()
    store.set_timeout(timedelta(seconds=20))
    attempts = [meet(store, 3) for _ in range(3)]
    for number, attempt in enumerate(attempts):
        attempt[number % 3].set("address", str(number))  # left behind for the attempts after it
    for number, attempt in enumerate(attempts):
        assert [one.get("address") for one in attempt] == [str(number).encode()] * 3


def test_who_does_not_come_is_named():
    store = dist.HashStore()
    meet(store, 3)  # has left hellos of all three
    with pytest.raises(ProcessError, match=r"\[1, 2\] of 3.*0\.2 seconds"):
        fresh_store(store, 0, 3, 0.2)
    store.set_timeout(timedelta(seconds=0.2))
    with pytest.raises(ProcessError, match=r"process 1 of 3.*process 0"):
        fresh_store(store, 1, 3, 0.2)
