"""A run with branches: one first phase, branches that start from it, and how many steps each of them gets."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from mmb.training.loop.branch_average import conclude
from mmb.training.loop.observer import Observer
from mmb.training.processes.group import Ranks
from mmb.training.runs.log import read_log
from mmb.training.runs.run import Run

_LATE = 0.8  # share of a run after which its last fifth begins


def train_branches(
    run: Run,
    ranks: Ranks,
    observer: Observer | None,
    train_phases: Callable[[Sequence[Run]], None],
    at_once: int,
    only_best: bool,
) -> dict[str, Any]:
    """Train the first phase and all branches of a run, and average the branches.

    Each of them is a run in its own folder, which continues from its newest checkpoint. The first branch is
    trained last: it gets the steps that others, stopped early, did not need. If the first phase ends while it
    still improves, the first branch continues it with the steps of all, and the others do not train.
    """
    observer = observer if observer is not None and ranks.is_main else Observer()
    with run.locked(ranks.is_main):
        start = ranks.main_first(run.start)
        if run.recipe.init_from is None:
            train_phases([start])
        recipes = run.recipe.branches
        first = next(name for name, recipe in recipes.items() if not recipe.fresh)
        rest = {name: recipe.training.length for name, recipe in recipes.items() if name != first}
        facts: dict[str, Any] = {"at_once": at_once} if at_once > 1 else {}
        if too_early := bool(rest) and still_rises(start, run.recipe.soup.still_rising):
            facts["still_rising"] = rise = rise_at_the_end(start, "pauc")
            observer.say(
                f"partial AUC on validation rows rose by {rise:.3f} in the last fifth of the first phase: "
                f"{first} trains for the steps of all branches; more epochs may gain more"
            )
        names = () if too_early else rest
        others = ranks.main_first(lambda: {name: run.branch(name, start) for name in names})
        train_phases(list(others.values()))
        unused = sum(_unused(others[name]) if name in others else length for name, length in rest.items())
        spare = unused / recipes[first].training.length
        last = ranks.main_first(lambda: run.branch(first, start, spare))
        train_phases([last])
        branches = {name: others.get(name, last) for name in recipes if name == first or name in others}
        return conclude(run, start, branches, ranks, observer, facts, only_best)


def still_rises(run: Run, limit: float) -> bool:
    """Whether a finished run improved at its end: partial AUC by more than a limit, and AUC at all.

    Either alone may rise by chance where validation rows are few.
    """
    return rise_at_the_end(run, "pauc") > limit and rise_at_the_end(run, "auc") > 0


def rise_at_the_end(run: Run, metric: str) -> float:
    """By how much the best value of a metric on the validation rows rose in the last fifth of a finished run.

    NaN if it was not measured before, or not after.
    """
    late = _LATE * run.result()["steps"]
    parts: dict[bool, list[float]] = {False: [], True: []}
    for record in read_log(run.path):
        if record["kind"] == "valid" and record["step"] > 0 and record[metric] is not None:
            parts[record["step"] > late].append(record[metric])
    return max(parts[True]) - max(parts[False]) if all(parts.values()) else math.nan


def _unused(branch: Run) -> float:
    """The part of a finished branch's length (see `TrainingSettings.length`) that an early end saved."""
    planned = read_log(branch.path)[0]["steps"]
    return branch.recipe.training.length * (1 - float(branch.result()["steps"]) / planned)
