"""Processes that train for another one."""

from __future__ import annotations

import multiprocessing
import os
import threading

import torch


def become_worker(threads: int) -> None:
    """Make this process one that trains for its parent: with so many threads, and no longer than it lives.

    A run must not go on, and keep its folder locked, when whoever waits for it is gone.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
