"""Processes that work for this one, each on one task after another."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, NoReturn, Self, TypeVar

import torch

from mmb._cores import available_cores
from mmb.training.processes.rendezvous import ProcessError

_Task = TypeVar("_Task")


class Workers(Generic[_Task]):
    """A context in which some processes do tasks.

    A process does many tasks, so that code compiled for one serves the next; one that is killed takes only
    its own task with it. All end with the context, and with the process that started them: free ones in good
    order, busy ones at once. Ctrl-C and SIGTERM to this process leave the context at once.

    Args:
        work: Does one task. It and the tasks must be picklable.
        count: Largest number of processes; each is started when it is first needed.
    """

    def __init__(self, work: Callable[[_Task], None], count: int) -> None:
        self._work, self._count = work, count
        self._free: list[_Worker] = []
        self._busy: dict[_Worker, _Task] = {}
        self._on_terminate: Any = None

    def __enter__(self) -> Self:
        """Turn SIGTERM into an exit that cleans up."""
        if threading.current_thread() is threading.main_thread():
            self._on_terminate = signal.signal(signal.SIGTERM, _exit)
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes."""
        for worker in self._free:
            worker.connection.close()  # it takes that for the end
        for worker in self._busy:
            worker.process.terminate()
        for worker in (*self._free, *self._busy):
            worker.process.join(timeout=10)
            worker.process.kill()
            worker.process.join()
        if self._on_terminate is not None:
            signal.signal(signal.SIGTERM, self._on_terminate)

    @property
    def any_free(self) -> bool:
        """Whether another task can start now."""
        return len(self._busy) < self._count

    @property
    def any_busy(self) -> bool:
        """Whether a task is being done."""
        return bool(self._busy)

    def start(self, task: _Task) -> None:
        """Give a task to a free process."""
        worker = self._free.pop() if self._free else _Worker(self._work, available_cores() // self._count)
        self._busy[worker] = task
        worker.connection.send(task)

    def wait(self, seconds: float) -> list[tuple[_Task, Exception | None]]:
        """Wait until tasks end, but not longer than `seconds`.

        Returns:
            The tasks that ended, each with the exception that `work` raised, or a `ProcessError` if its
            process was killed.
        """
        wait([worker.connection for worker in self._busy], seconds)
        ended = []
        for worker in list(self._busy):
            if worker.connection.poll() or not worker.process.is_alive():
                task = self._busy.pop(worker)
                try:
                    error = worker.answer()
                    self._free.append(worker)
                except (EOFError, OSError):
                    worker.process.join()
                    error = ProcessError(
                        f"its process ended with exit code {worker.process.exitcode}, perhaps because memory "
                        "ran out: the same command continues; --jobs 1 trains one run at a time"
                    )
                ended.append((task, error))
        return ended


class _Worker:
    """A process and the connection to it."""

    def __init__(self, work: Callable[[Any], None], threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, there = context.Pipe()
        self.process = context.Process(target=_serve, args=(there, work, max(1, threads)))
        self.process.start()
        there.close()

    def answer(self) -> Exception | None:
        """The exception of the task that ended, if any; where it was raised is its cause."""
        if not self.connection.poll():
            raise EOFError
        answer: tuple[Exception, str] | None = self.connection.recv()
        if answer is None:
            return None
        error, where = answer
        error.__cause__ = _InWorker(where)
        return error


class _InWorker(Exception):
    """The traceback of an exception in another process."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _serve(connection: Connection, work: Callable[[Any], None], threads: int) -> None:
    """Do tasks until the connection is closed or the parent is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent decides
    torch.set_num_threads(threads)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        answer = None
        try:
            work(task)
        except Exception as error:
            answer = _picklable(error), traceback.format_exc()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        connection.send(answer)


def _picklable(error: Exception) -> Exception:
    """The exception, or one that says the same if it cannot be sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return ProcessError(f"{type(error).__name__}: {error}")
    return error


def _exit(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)
