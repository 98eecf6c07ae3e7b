"""Several methods on the same data over several seeds: train them all, put them side by side."""

from __future__ import annotations

import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from mmb.metrics import SHORT_NAMES
from mmb.training.loop.loop import train
from mmb.training.loop.setup import rows_per_step
from mmb.training.loop.watch import Watch
from mmb.training.processes.workers import become_worker
from mmb.training.recipes.nested import Fragment, merge
from mmb.training.recipes.presets import METHODS
from mmb.training.recipes.recipe import Recipe
from mmb.training.recipes.resolution import resolve
from mmb.training.runs.log import read_log
from mmb.training.runs.run import Run, RunError


def plan(fragment: Fragment, methods: Sequence[str], seeds: int, folder: Path) -> list[Run]:
    """Make, or find again, the folders of all runs of a comparison.

    Args:
        fragment: What all runs have in common: at least the data set.
        methods: Names of the methods.
        seeds: Seeds 0 to `seeds - 1` are used.
        folder: Folder of the comparison; each run is in `METHOD/seed-N`.

    Returns:
        The runs, seed by seed.

    Raises:
        RecipeError: If a key or a value is wrong; no folder is made then.
        RunError: If a folder has a run of another recipe, or methods would see different numbers of rows.
    """
    wanted = [
        (folder / method / f"seed-{seed}", resolve(merge(fragment, {"method": method, "seed": seed})))
        for seed in range(seeds)
        for method in methods
    ]
    check_fair([recipe for _, recipe in wanted])
    if not all(recipe.training.test for _, recipe in wanted):
        raise RunError("a comparison is of test rows: set training.test=true")
    return [Run.find(path, recipe) for path, recipe in wanted]


def check_fair(recipes: Sequence[Recipe], same_rows: bool = True) -> None:
    """Refuse to compare runs with different data, networks or numbers of rows seen.

    Args:
        recipes: The recipes of the runs.
        same_rows: Whether steps must have equally many rows, too.

    Raises:
        RunError: Naming what differs.
    """
    for name, seen in (
        ("data", {json.dumps(recipe.data) for recipe in recipes}),
        ("model", {json.dumps(recipe.model) for recipe in recipes}),
        ("rows per step", {str(rows_per_step(recipe)) for recipe in recipes if same_rows}),
        ("steps", {str((r.training.steps, r.training.epochs)) for r in recipes}),
        ("selection", {r.training.select for r in recipes}),
    ):
        if len(seen) > 1:
            raise RunError(
                f"not a fair comparison: {name} differs between methods: {'; '.join(sorted(seen))}"
            )


def train_all(runs: Sequence[Run], jobs: int, watch: Watch, moved: Callable[[float], None]) -> None:
    """Train all runs that are not finished.

    Args:
        runs: The runs.
        jobs: Processes to use; with one, runs are trained here.
        watch: Is told of each training, with one process.
        moved: Is told now and then how many runs are done, a run in progress counting in part.

    Raises:
        RunError: If a process that trained was killed; and what `train` raises.
    """
    left = [run for run in runs if not run.finished]
    if jobs <= 1 or len(left) <= 1:
        for number, run in enumerate(left, 1):
            train(run, watch)
            moved(len(runs) - len(left) + number)
        return
    context = multiprocessing.get_context("spawn")
    # A thread each: the processes are as many as the cores.
    with ProcessPoolExecutor(min(jobs, len(left)), context, become_worker, (1,)) as pool:
        futures = [pool.submit(_train, run.path) for run in left]
        while not all(future.done() for future in futures):
            time.sleep(0.2)
            moved(sum(_share_done(run) for run in runs))
            for future in futures:
                if future.done() and future.exception() is not None:
                    pool.shutdown(wait=False, cancel_futures=True)
                    _raise(future)


def _raise(future: Future[None]) -> None:
    try:
        future.result()
    except BrokenProcessPool as error:
        raise RunError(
            "a process that trained was killed, perhaps because memory ran out: the same command continues "
            "where it was; --jobs 1 trains one run at a time"
        ) from error


def _train(path: Path) -> None:
    train(Run.open(path))


def _share_done(run: Run) -> float:
    """How much of a run that another process trains is done, as its log tells."""
    if run.finished or not (run.path / "metrics.jsonl").exists():
        return float(run.finished)
    records = read_log(run.path)
    steps = next((record["steps"] for record in records if "steps" in record), None)
    return records[-1].get("step", 0) / steps if steps else 0.0


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """Mean and standard deviation over seeds of each method's test metrics.

    Returns:
        For each method: its metrics, the seconds of a run, and the values of each seed.
    """
    summary: dict[str, Any] = {}
    for method, results in _by_method(runs):
        entry: dict[str, Any] = {"title": METHODS[method].title, "seeds": len(results)}
        for metric in SHORT_NAMES:
            values = [result["test"][metric] for result in results]
            if None in values:
                raise RunError(
                    "no task has both a positive and a negative among the test rows, so there is nothing to "
                    "compare: give the data another split"
                )
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            entry[metric] = {"mean": statistics.fmean(values), "std": spread, "values": values}
        entry["seconds"] = statistics.fmean(result["seconds"] for result in results)
        entry["steps"] = statistics.fmean(result["steps"] for result in results)
        summary[method] = entry
    return summary


def _by_method(runs: Sequence[Run]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    methods = dict.fromkeys(run.recipe.method for run in runs)
    for method in methods:
        yield method, [run.result() for run in runs if run.recipe.method == method]
