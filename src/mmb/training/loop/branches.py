"""A run with branches: one first phase, branches that start from it, and how many steps each of them gets."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from mmb.training.loop.branch_average import conclude
from mmb.training.loop.observer import Observer
from mmb.training.processes.group import Ranks
from mmb.training.runs.log import read_log
from mmb.training.runs.run import Run

_LATE = 0.8  # share of a run after which its last fifth begins
_BEYOND_NOISE = 2.0  # standard deviations
_DEVIATION = 1.4826 / math.sqrt(6)  # from the median size of second differences of independent normal errors


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
    """Whether a finished run improves at its end: partial AUC by more than a limit, it and AUC beyond noise.

    Where validation rows are few, both metrics jump, and one jump more tells nothing.
    """
    return rise_at_the_end(run, "pauc") > limit and all(
        rise_at_the_end(run, metric) > _BEYOND_NOISE * jitter(run, metric) for metric in ("pauc", "auc")
    )


def rise_at_the_end(run: Run, metric: str) -> float:
    """By how much the best value of a metric on the validation rows rose in the last fifth of a finished run.

    NaN if it was not measured before, or not after.
    """
    late = _LATE * run.result()["steps"]
    curve = _curve(run, metric)
    before, after = ([v for step, v in curve if (step > late) == part] for part in (False, True))
    return max(after) - max(before) if before and after else math.nan


def jitter(run: Run, metric: str) -> float:
    """The noise of a metric on the validation rows in the second half of a finished run.

    It is that standard deviation of independent errors of which the second differences have the median size
    that these have. A smooth rise adds nothing to it. Zero if there are too few values to tell.
    """
    values = [value for _, value in _curve(run, metric)]
    second = values[len(values) // 2 :]
    sizes = [abs(a - 2 * b + c) for a, b, c in zip(second, second[1:], second[2:], strict=False)]
    return _DEVIATION * statistics.median(sizes) if sizes else 0.0


def _curve(run: Run, metric: str) -> list[tuple[int, float]]:
    """Steps and values of a metric on the validation rows, where it has one, without the initial weights."""
    valid = [record for record in read_log(run.path) if record["kind"] == "valid" and record["step"] > 0]
    return [(record["step"], record[metric]) for record in valid if record[metric] is not None]


def _unused(branch: Run) -> float:
    """The part of a finished branch's length (see `TrainingSettings.length`) that an early end saved."""
    planned = read_log(branch.path)[0]["steps"]
    return branch.recipe.training.length * (1 - float(branch.result()["steps"]) / planned)
