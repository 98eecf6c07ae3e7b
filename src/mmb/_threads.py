"""Threads: work done ahead of its use, and torch limited to one thread."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar, cast

import torch

_Item = TypeVar("_Item")


@contextmanager
def one_ahead(items: Iterable[_Item]) -> Iterator[Iterator[_Item]]:
    """The same items in order; while one is used, a thread makes the next. An error comes in its turn.

    When the context is left, the thread is done.
    """
    with ThreadPoolExecutor(1) as thread:

        def fetched() -> Iterator[_Item]:
            source, end = iter(items), object()
            coming = thread.submit(next, source, end)
            while (item := coming.result()) is not end:
                coming = thread.submit(next, source, end)
                yield cast(_Item, item)

        yield fetched()


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch from dividing operations among threads, which would wait for each other on busy cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
