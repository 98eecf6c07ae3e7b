"""The runs of a study, one after another or many at once in processes of their own."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from mmb.training.checkpoint import steps
from mmb.training.children import become_worker
from mmb.training.files import write_whole
from mmb.training.loop import train
from mmb.training.reproduce.plan import ERROR, Planned
from mmb.training.run import Run
from mmb.training.watch import Watch

Ended = Callable[[Planned, str | None], None]


def train_all(planned: Sequence[Planned], jobs: int, watch: Watch, ended: Ended) -> dict[str, str]:
    """Train all runs that are not finished; one that fails does not stop the others.

    Many at once are each a process of its own: compiling keeps a core busy and the GPU idle, and what one
    process breaks is whole for the others. First phases go first, and what starts from one goes as soon as
    it is done.

    Args:
        planned: The runs, each first phase before what starts from it.
        jobs: Runs at a time; with one, they are trained here.
        watch: Is told of each training, with one at a time.
        ended: Is told of each run that has ended, and why it failed, if it did.

    Returns:
        Names of the runs that failed, and why.
    """
    if jobs > 1:
        queue = _Queue(sorted(planned, key=lambda one: one.after is not None), ended)
        _train_at_once(queue, jobs)
    else:
        queue = _Queue(planned, ended)
        while (one := queue.take()) is not None:
            _attempt(one.run, 1, watch)
            queue.end(one, None)
    return queue.failed


class _Queue:
    """Runs that wait: for a free process, and for their first phase."""

    def __init__(self, planned: Sequence[Planned], ended: Ended) -> None:
        self._finished = {one.name for one in planned if one.run.finished}
        self._waiting = [one for one in planned if one.name not in self._finished]
        self._ended = ended
        self.failed: dict[str, str] = {}

    def take(self) -> Planned | None:
        """The first run that can be trained now; None if none can."""
        for one in list(self._waiting):
            if one.after is None or one.after in self._finished:
                self._waiting.remove(one)
                (one.run.path / ERROR).unlink(missing_ok=True)
                return one
        return None

    def end(self, one: Planned, exitcode: int | None) -> None:
        """A run has ended, and with it those that cannot start because it failed."""
        if one.run.finished:
            self._finished.add(one.name)
            self._ended(one, None)
            return
        self._fail(one, _problem(one.run, exitcode))
        for other in [other for other in self._waiting if other.after == one.name]:
            self._waiting.remove(other)
            self._fail(other, f"its first phase {one.name} failed")

    def _fail(self, one: Planned, problem: str) -> None:
        self.failed[one.name] = problem
        self._ended(one, problem)


def _train_at_once(queue: _Queue, jobs: int) -> None:
    context = multiprocessing.get_context("spawn")
    active: dict[int, tuple[Planned, SpawnProcess]] = {}
    try:
        while True:
            while len(active) < jobs and (one := queue.take()) is not None:
                process = context.Process(target=_train_here, args=(one.run.path, jobs), name=one.name)
                process.start()
                active[process.sentinel] = (one, process)
            if not active:
                return
            wait(list(active), timeout=5)
            for sentinel, (one, process) in list(active.items()):
                if process.exitcode is not None:
                    del active[sentinel]
                    queue.end(one, process.exitcode)
    finally:
        for _, process in active.values():
            process.terminate()
            process.join()


def _train_here(path: Path, at_once: int) -> None:
    """The work of a process."""
    become_worker(max(1, len(os.sched_getaffinity(0)) // at_once))
    _attempt(Run.open(path), at_once, Watch())


def _attempt(run: Run, at_once: int, watch: Watch) -> None:
    """Train a run; if that fails, say why in a file in its folder."""
    try:
        result = train(run, watch)
    except Exception as error:
        write_whole(run.path / ERROR, f"{type(error).__name__}: {error}\n\n{traceback.format_exc()}")
        return
    for path in steps(run.checkpoints):  # those of compositional training take a gigabyte each
        if path != run.best_checkpoint():
            shutil.rmtree(path)
    if at_once > 1:  # seconds are then of a device that was shared
        write_whole(run.path / "result.json", json.dumps({**result, "at_once": at_once}, indent=1))


def _problem(run: Run, exitcode: int | None) -> str:
    """Why a run is not finished."""
    path = run.path / ERROR
    if path.exists():
        return path.read_text(encoding="utf-8").split("\n\n")[0]
    return f"its process ended with exit code {exitcode}"
