"""Processes that work for another one and do not outlive it."""

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.connection import Connection, wait
from typing import Any

_GRACE = 10.0  # seconds


def end_with_parent(*others: Connection) -> None:
    """End this process when the one that started it ends, or when one of some connections is closed.

    It gets a SIGTERM, and a few seconds for whoever handles that. Call this first in a process that
    `multiprocessing` started. It also leaves Ctrl-C, which a terminal sends to all processes, to the parent.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "for processes that another one started"
    watched: list[Any] = [parent.sentinel, *others]

    def end() -> None:
        wait(watched)
        signal.raise_signal(signal.SIGTERM)
        time.sleep(_GRACE)
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
