"""Processes that do tasks: errors come back, a killed one is replaced, none outlives its parent."""

import multiprocessing
import os
import signal
import time
from functools import partial

import pytest

from mmb.training.processes.rendezvous import ProcessError
from mmb.training.processes.workers import Workers
from processes import fork_server
from tiny_runs import wait_until
from worker_tasks import do, has_ended


def ended(workers):
    found = []
    while not found:
        found = workers.wait(60)
    ((task, error),) = found
    return task, error


def test_tasks_end_with_their_errors_and_a_killed_process_is_replaced(tmp_path):
    with Workers(partial(do, tmp_path), 1) as workers:
        for task, error in {
            "first": None,
            "fail": ValueError("not this"),
            "odd": ProcessError("OddError: 1, 2"),
            "second": None,
            "die": ProcessError("killed"),
            "third": None,
        }.items():
            assert workers.busy == 0
            workers.start(task)
            assert workers.busy == 1
            done, found = ended(workers)
            assert (done, type(found)) == (task, type(error))
            assert str(error) in str(found) or error is None
            if task == "fail":
                assert "worker_tasks.py" in str(found.__cause__)
        first, second, third = ((tmp_path / name).read_text() for name in ("first", "second", "third"))
        assert first == second != third != str(os.getpid())
        workers.start("forever")
        wait_until(lambda: (tmp_path / "forever").exists())
        handler = signal.getsignal(signal.SIGTERM)
        start = time.monotonic()
        with pytest.raises(SystemExit, match="143"):
            signal.raise_signal(signal.SIGTERM)
        assert time.monotonic() - start < 1
        assert handler is signal.getsignal(signal.SIGTERM)
    assert not multiprocessing.active_children()  # also the one that was busy
    assert signal.getsignal(signal.SIGTERM) is not handler


def test_they_end_with_the_process_that_started_them(tmp_path):
    parent = fork_server().Process(target=do, args=(tmp_path, "hold"))
    parent.start()
    wait_until(lambda: (tmp_path / "forever").exists())
    worker = int((tmp_path / "forever").read_text())
    parent.kill()
    parent.join()
    wait_until(lambda: has_ended(worker), 20)
