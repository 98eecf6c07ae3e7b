"""What tests all over the suite share."""

import signal

import pytest


@pytest.fixture
def interruptible():
    """Let Ctrl-C raise, here and in child processes: a shell's background jobs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
