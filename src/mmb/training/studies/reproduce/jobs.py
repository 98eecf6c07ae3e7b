"""The runs of a study, one after another or many at once in processes of their own."""

from __future__ import annotations

import gc
import json
import multiprocessing
import shutil
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait

import torch

from mmb._atomic_files import write_whole
from mmb._cores import available_cores
from mmb.training.loop.loop import train
from mmb.training.loop.watch import Watch
from mmb.training.processes.workers import become_worker
from mmb.training.recipes.components import objective_class
from mmb.training.runs.checkpoint import steps
from mmb.training.runs.run import Run
from mmb.training.studies.reproduce.plan import ERROR, Planned

Ended = Callable[[Planned, str | None], None]


def train_all(planned: Sequence[Planned], jobs: int, watch: Watch, ended: Ended) -> dict[str, str]:
    """Train all runs that are not finished; one that fails does not stop the others.

    Many at once go to as many processes: compiling keeps a core busy and the GPU idle, and what one process
    breaks is whole for the others. First phases go first; what starts from one goes as soon as it is done,
    compositional training before the rest, since it compiles for minutes.

    Args:
        planned: The runs, each first phase before what starts from it.
        jobs: Runs at a time; with one, they are trained here.
        watch: Is told of each training, with one at a time.
        ended: Is told of each run that has ended, and why it failed, if it did.

    Returns:
        Names of the runs that failed, and why.
    """
    if jobs > 1:
        queue = _Queue(sorted(planned, key=_turn), ended)
        _train_at_once(queue, jobs)
    else:
        queue = _Queue(planned, ended)
        while (one := queue.take()) is not None:
            _attempt(one.run, 1, watch)
            queue.end(one, None)
    return queue.failed


def _turn(one: Planned) -> tuple[bool, bool]:
    return one.after is not None, not objective_class(one.run.recipe.method).weights_per_task


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
    workers: list[_Worker] = []
    try:
        while True:
            busy = [worker for worker in workers if worker.one is not None]
            if len(busy) < jobs and (one := queue.take()) is not None:
                if len(busy) == len(workers):
                    workers.append(_Worker(jobs))
                next(worker for worker in workers if worker.one is None).train(one)
                continue
            if not busy:
                return
            wait([worker.connection for worker in busy], timeout=5)
            for worker in busy:
                lost = worker.process.exitcode is not None
                if worker.answered() or lost:
                    queue.end(worker.release(), worker.process.exitcode)
                    if lost:
                        workers.remove(worker)
    finally:
        for worker in workers:
            worker.connection.close()  # which ends those that are free
        for worker in workers:
            worker.stop()


class _Worker:
    """A process that trains one run after another, so that what was compiled for one serves the next.

    Args:
        at_once: How many there are.
    """

    def __init__(self, at_once: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, there = context.Pipe()
        self.process = context.Process(target=_work, args=(there, at_once))
        self.process.start()
        there.close()
        self.one: Planned | None = None

    def train(self, one: Planned) -> None:
        """Begin with a run."""
        self.one = one
        self.connection.send(one.run.path)

    def answered(self) -> bool:
        """Whether it is through with its run; asked once."""
        with suppress(EOFError):
            return self.connection.poll() and bool(self.connection.recv())
        return False

    def release(self) -> Planned:
        """The run that it had; it is free for the next."""
        assert self.one is not None
        one, self.one = self.one, None
        return one

    def stop(self) -> None:
        """Wait for its end if it is free, so that it leaves in good order; end it if not."""
        if self.one is None:
            self.process.join(timeout=10)
        self.process.terminate()
        self.process.join()


def _work(connection: Connection, at_once: int) -> None:
    """What a process does."""
    become_worker(max(1, available_cores() // at_once))
    while True:
        try:
            path = connection.recv()
        except EOFError:
            return
        _attempt(Run.open(path), at_once, Watch())
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        connection.send(path)


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
