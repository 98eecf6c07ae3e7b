"""What tests all over the suite share."""

import signal
from unittest import mock

import pytest


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk():
    """Files are written as always, but not flushed: that guards against power cuts, which no test makes."""
    with mock.patch("os.fsync"):
        yield


@pytest.fixture
def interruptible():
    """Let Ctrl-C raise, here and in child processes: a shell's background jobs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
