"""Processes that work for this one, each on one task after another."""

import gc
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any, Generic, NoReturn, Self, TypeVar

import torch

from mmb._cores import available_cores
from mmb._processes import end_with_parent
from mmb.training.processes.rendezvous import ProcessError

_Task = TypeVar("_Task")
_LOOK_EVERY = 0.5  # seconds


class Workers(Generic[_Task]):
    """A context in which some processes do tasks.

    A process does many tasks, so that code compiled for one serves the next; one that is killed takes only
    its own task with it. All end with the context, busy or not, and with the process that started them; a run
    in training gets a checkpoint first, if that takes only seconds. Ctrl-C and SIGTERM to this
    process leave the context at once. The work, which does one task, and the tasks must be picklable. Up to
    `count` processes are started, each when it is first needed.
    """

    def __init__(self, work: Callable[[_Task], None], count: int) -> None:
        self._work, self._count = work, count
        self._free: list[ProcessPoolExecutor] = []
        self._busy: dict[Future[None], tuple[_Task, ProcessPoolExecutor]] = {}
        self._alive, self._ours = multiprocessing.get_context("spawn").Pipe(duplex=False)

    def __enter__(self) -> Self:
        """Turn SIGTERM into an exit that leaves the context."""
        if threading.current_thread() is threading.main_thread():
            self._on_terminate: Any = signal.signal(signal.SIGTERM, _exit)
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes."""
        for executor in self._free:
            executor.shutdown()
        self._ours.close()  # which ends those that are busy
        for _task, executor in self._busy.values():
            executor.shutdown()
        self._alive.close()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_terminate or signal.SIG_DFL)

    @property
    def busy(self) -> int:
        """Number of tasks that are being done."""
        return len(self._busy)

    def start(self, task: _Task) -> None:
        """Give a task to a free process."""
        executor = self._free.pop() if self._free else self._new()
        self._busy[executor.submit(_do, self._work, task)] = task, executor

    def _new(self) -> ProcessPoolExecutor:
        """A pool of one process, since the death of one ends all of its pool."""
        threads = max(1, available_cores() // self._count)
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(1, context, _become_worker, (self._alive, threads))

    def do_all(self, tasks: Sequence[_Task]) -> None:
        """Do all tasks, as many at a time as there are processes; the first exception ends the others."""
        waiting = list(reversed(tasks))
        while waiting or self.busy:
            while waiting and self.busy < self._count:
                self.start(waiting.pop())
            for _, error in self.wait(_LOOK_EVERY):
                if error is not None:
                    raise error

    def wait(self, seconds: float) -> list[tuple[_Task, Exception | None]]:
        """Wait until tasks end, at most `seconds`; returns each with the exception that `work` raised.

        It is a `ProcessError` if the process was killed.
        """
        ended = []
        for future in wait(self._busy, seconds, FIRST_COMPLETED).done:
            task, executor = self._busy.pop(future)
            error: Any = future.exception()
            if isinstance(error, BrokenProcessPool):
                error = ProcessError(
                    "its process was killed, perhaps because memory ran out: the same command continues; "
                    "--jobs 1 trains one run at a time"
                )
            else:
                self._free.append(executor)
            ended.append((task, error))
        return ended


def _become_worker(alive: Connection, threads: int) -> None:
    """Let this process live no longer than the context, or the process, that it works for."""
    end_with_parent(alive)
    torch.set_num_threads(threads)


def _do(work: Callable[[_Task], None], task: _Task) -> None:
    """Do a task; an exception that cannot be sent to another process becomes one that says the same."""
    try:
        work(task)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            raise ProcessError(f"{type(error).__name__}: {error}") from error
        raise
    except SystemExit:  # by a signal, after the checkpoint of a run
        os._exit(1)
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _exit(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)
