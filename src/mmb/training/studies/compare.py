"""Several methods on the same data over several seeds, side by side."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmb.metrics import SHORT_NAMES
from mmb.training.loop.setup import rows_per_step
from mmb.training.recipes.nested import Fragment, merge
from mmb.training.recipes.presets import METHODS
from mmb.training.recipes.recipe import Recipe
from mmb.training.recipes.resolution import resolve
from mmb.training.runs.run import Run, RunError
from mmb.training.studies.many_runs import PlannedRun


def plan_comparison(fragment: Fragment, methods: Sequence[str], seeds: int, folder: Path) -> list[PlannedRun]:
    """Make, or find again, the folders of all runs of a comparison.

    Args:
        fragment: What all runs have in common: at least the data set.
        methods: Names of the methods.
        seeds: Seeds 0 to `seeds - 1` are used.
        folder: Folder of the comparison; each run is in `METHOD/seed-N`.

    Returns:
        The runs, seed by seed, for `train_many`.

    Raises:
        RecipeError: If a key or a value is wrong; no folder is made then.
        RunError: If a folder has a run of another recipe, or methods would see different numbers of rows.
    """
    wanted = {
        f"{method}/seed-{seed}": resolve(merge(fragment, {"method": method, "seed": seed}))
        for seed in range(seeds)
        for method in methods
    }
    check_fair(list(wanted.values()))
    if not all(recipe.training.test for recipe in wanted.values()):
        raise RunError("methods are compared on test rows: set training.test=true")
    return [PlannedRun(name, Run.find(folder / name, recipe)) for name, recipe in wanted.items()]


def check_fair(recipes: Sequence[Recipe], same_rows: bool = True) -> None:
    """Refuse to compare runs that differ in data, network, steps, selection or, if asked, rows per step."""
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


def summarize(runs: Sequence[Run]) -> dict[str, Any]:
    """Mean and standard deviation over seeds of each method's test metrics.

    Args:
        runs: Finished runs.

    Returns:
        For each method its metrics, the seconds of a run, and the values of each seed.

    Raises:
        RunError: If a run is not finished, or a metric is not defined on its test rows.
    """
    summary: dict[str, Any] = {}
    for method in dict.fromkeys(run.recipe.method for run in runs):
        results = [run.result() for run in runs if run.recipe.method == method]
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
