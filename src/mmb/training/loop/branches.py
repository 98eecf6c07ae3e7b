"""A run with branches: one first phase, branches that start from it, and how many steps each of them gets."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from mmb.training.loop.branch_average import clear_gain, conclude
from mmb.training.loop.observer import Observer
from mmb.training.processes.group import Ranks
from mmb.training.runs.log import read_log, validation_curve
from mmb.training.runs.run import Run
from mmb.training.runs.tables import unbranched_note

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

    Each of them is a run in its own folder, which continues from its newest checkpoint. It is too early for
    branches if the first phase still improves at its end, or if the first branch, in which the step size
    falls, gains much over it. Then the first branch has the steps of all, and the others do not train.
    """
    observer = observer if observer is not None and ranks.is_main else Observer()
    with run.locked(ranks.is_main):
        start = ranks.main_first(run.start)
        if run.recipe.init_from is None:
            train_phases([start])
        recipes, settings = run.recipe.branches, run.recipe.soup
        first = next(name for name, recipe in recipes.items() if not recipe.fresh)
        rest = [name for name in recipes if name != first]
        more = sum(recipes[name].training.length for name in rest) / recipes[first].training.length
        facts: dict[str, Any] = {"at_once": at_once} if at_once > 1 else {}
        branches: dict[str, Run] = {}

        def train_these(make: Callable[[], dict[str, Run]]) -> None:
            made = ranks.main_first(make)
            train_phases(list(made.values()))
            branches.update(made)

        if too_early := bool(rest) and still_rises(start, settings.still_rising):
            facts["still_rising"] = rise_at_the_end(start, "pauc")
        train_these(lambda: {first: run.branch(first, start, more if too_early else 0.0)})
        if rest and not too_early and settings.still_gaining < 1:
            gain = clear_gain(run, start, branches[first], ranks)
            if too_early := gain > settings.still_gaining:
                facts["still_gaining"] = gain
                train_these(lambda: {f"{first}-longer": run.longer(branches[first], more)})
        if too_early:
            observer.say(f"{unbranched_note(facts)} More epochs may gain more.")
        else:
            train_these(lambda: {name: run.branch(name, start) for name in rest})
            branches = {name: branches[name] for name in recipes}
        return conclude(run, start, branches, ranks, observer, facts, only_best)


def still_rises(run: Run, limit: float) -> bool:
    """Whether a finished run still improves at its end.

    Partial AUC has to rise by more than a limit, and both partial AUC and AUC by more than noise: with few
    validation rows both jump, and a single jump says nothing.
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

    It is the standard deviation of independent errors whose second differences have the same median size. A
    smooth rise adds nothing to it. Zero if there are too few values to tell.
    """
    values = [value for _, value in _curve(run, metric)]
    second = values[len(values) // 2 :]
    sizes = [abs(a - 2 * b + c) for a, b, c in zip(second, second[1:], second[2:], strict=False)]
    return _DEVIATION * statistics.median(sizes) if sizes else 0.0


def _curve(run: Run, metric: str) -> list[tuple[int, float]]:
    """Steps and values of a metric on the validation rows, without the initial weights."""
    return [(step, value) for step, value in validation_curve(read_log(run.path), metric) if step > 0]
