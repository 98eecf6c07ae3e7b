"""Many runs: trained one after another here, or several at a time in other processes."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mmb._atomic_files import write_whole
from mmb.training.loop.loop import train
from mmb.training.loop.observer import Observer
from mmb.training.processes.rendezvous import ProcessError
from mmb.training.processes.workers import Workers
from mmb.training.recipes.components import weights_per_task
from mmb.training.recipes.nested import Fragment, merge
from mmb.training.recipes.resolution import resolve
from mmb.training.runs.log import planned_steps, read_log
from mmb.training.runs.run import Run, RunError

ERROR = "error.txt"
"""File in the folder of a run that failed: why, and where."""

_LOOK_EVERY = 0.5  # seconds


@dataclass(frozen=True)
class PlannedRun:
    """A run among others.

    Attributes:
        name: Its place among the folders of all of them, such as `molpcba/table2/ce/seed-0`.
        run: The run.
        after: Name of the first phase that it starts from, if that is one of the others.
    """

    name: str
    run: Run
    after: str | None = None


def plan_runs(fragment: Fragment, changes: Mapping[str, Fragment], folder: Path) -> list[PlannedRun]:
    """Make, or find again, the folders of runs of one recipe with some changes, by name.

    All recipes are checked before any folder is made.
    """
    recipes = {name: resolve(merge(fragment, change)) for name, change in changes.items()}
    return [PlannedRun(name, Run.find(folder / name, recipe)) for name, recipe in recipes.items()]


def train_many(
    planned: Sequence[PlannedRun],
    jobs: int = 1,
    observer: Observer | None = None,
    ended: Callable[[PlannedRun, Exception | None], None] | None = None,
    moved: Callable[[float], None] = lambda done: None,
    only_best: bool = False,
) -> dict[str, Exception]:
    """Train all runs that are not finished.

    With several jobs, runs that others start from go first, then compositional training, which compiles for
    minutes. After Ctrl-C or a kill, each run continues from its newest checkpoint when it is trained again.

    Args:
        planned: The runs, each first phase before the runs that start from it.
        jobs: Runs at a time, each in its own process; a single one is trained in this process.
        observer: Called by each training in this process.
        ended: Called for each run that ends, with its error if it failed. By default the first error is
            raised, which stops the other runs.
        moved: Called now and then with the number of runs done; one in progress counts in part.
        only_best: Whether finished runs keep only the checkpoint of their selected weights.

    Returns:
        The errors of the runs that failed, by name; the folder of each has an `error.txt`.
    """
    waiting = RunQueue(planned)
    jobs = min(jobs, len(waiting))
    failed: dict[str, Exception] = {}

    def end(one: PlannedRun, error: Exception | None) -> None:
        if isinstance(error, ProcessError):
            error = RunError(f"{one.run.path}: {error}")
        for each, problem in waiting.end(one, error):
            if problem is not None:
                failed[each.name] = problem
                text = "".join(traceback.format_exception(problem))
                write_whole(each.run.path / ERROR, f"{type(problem).__name__}: {problem}\n\n{text}")
            if ended is not None:
                ended(each, problem)
            elif problem is not None:
                raise problem

    if jobs <= 1:
        while (one := waiting.take()) is not None:
            error = None
            try:
                train(one.run, observer, only_best=only_best)
            except Exception as found:
                error = found
            end(one, error)
            moved(sum(share_done(one.run) for one in planned))
        return failed
    with Workers(partial(_train, at_once=jobs, only_best=only_best), jobs) as workers:
        waiting.prefer_long()
        while True:
            while workers.busy < jobs and (one := waiting.take()) is not None:
                workers.start(one)
            if not workers.busy:
                return failed
            for one, error in workers.wait(_LOOK_EVERY):
                end(one, error)
            moved(sum(share_done(one.run) for one in planned))


class RunQueue:
    """The runs of a list that are not finished; some wait for their first phase."""

    def __init__(self, planned: Sequence[PlannedRun]) -> None:
        self._finished = {one.name for one in planned if one.run.finished}
        self._waiting = [one for one in planned if one.name not in self._finished]

    def __len__(self) -> int:
        """Number of runs that wait."""
        return len(self._waiting)

    def prefer_long(self) -> None:
        """Put first phases first, then methods that compile for long."""

        def turn(one: PlannedRun) -> tuple[bool, bool]:
            return one.after is not None, not weights_per_task(one.run.recipe)

        self._waiting.sort(key=turn)

    def take(self) -> PlannedRun | None:
        """The first run that can be trained now, which leaves the queue; None if none can."""
        for one in self._waiting:
            if one.after is None or one.after in self._finished:
                self._waiting.remove(one)
                (one.run.path / ERROR).unlink(missing_ok=True)
                return one
        return None

    def end(self, one: PlannedRun, error: Exception | None) -> list[tuple[PlannedRun, Exception | None]]:
        """All runs that end with this one: if it failed, also those that were to start from it."""
        if error is None:
            self._finished.add(one.name)
            return [(one, None)]
        lost = [other for other in self._waiting if other.after == one.name]
        self._waiting = [other for other in self._waiting if other not in lost]
        return [(one, error), *((other, RunError(f"its first phase {one.name} failed")) for other in lost)]


def _train(one: PlannedRun, at_once: int, only_best: bool) -> None:
    train(one.run, at_once=at_once, only_best=only_best)


def share_done(run: Run) -> float:
    """How much of a run is done, from 0 to 1, by its log."""
    if run.finished or not (run.path / "metrics.jsonl").exists():
        return float(run.finished)
    records = read_log(run.path)
    steps = planned_steps(records)
    return records[-1].get("step", 0) / steps if steps else 0.0
