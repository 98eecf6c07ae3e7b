"""Stopping between steps: Ctrl-C and SIGTERM end training with a checkpoint, so that no step is lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class StopRequest:
    """Whether this process was asked to stop."""

    def __init__(self) -> None:
        self._number: int | None = None

    def __bool__(self) -> bool:
        return self._number is not None

    def receive(self, number: int, _: Any = None) -> None:
        """Keep a signal; the second one takes effect at once."""
        if self._number is not None:
            self.stop()
        self._number = number

    def stop(self) -> None:
        """Raise what the signal raises otherwise, or an exit with its number."""
        if self._number is not None:
            raise KeyboardInterrupt if self._number == signal.SIGINT else SystemExit(128 + self._number)


@contextmanager
def stop_requests(enabled: bool) -> Iterator[StopRequest]:
    """In this context, Ctrl-C and SIGTERM become a request; only in the main thread, which Python signals.

    A signal that this process ignores is still ignored.
    """
    request = StopRequest()
    before = {}
    if enabled and threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, request.receive)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
