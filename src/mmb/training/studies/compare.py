"""Several methods on the same data over several seeds, side by side."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mmb._atomic_files import replacing
from mmb._extras import require
from mmb.metrics import METRICS
from mmb.metrics.titles import column_titles, definition, shown_metrics, value_text
from mmb.training.loop.sampler import rows_per_step
from mmb.training.recipes.nested import Fragment, merge
from mmb.training.recipes.presets import CONTROL, method_of
from mmb.training.recipes.recipe import Recipe
from mmb.training.recipes.resolution import resolve
from mmb.training.runs.log import read_log, validation_curve
from mmb.training.runs.run import Run, RunError, data_title, folder_name
from mmb.training.runs.tables import make_table, unbranched_note
from mmb.training.studies.many_runs import PlannedRun


def plan_comparison(
    fragment: Fragment, methods: Sequence[str], seeds: int, folder: Path, controls: bool = True
) -> list[PlannedRun]:
    """Make, or find again, the folders of all runs of a comparison.

    Args:
        fragment: What all runs have in common: at least the data set.
        methods: Names of the methods.
        seeds: Seeds 0 to `seeds - 1` are used.
        folder: Folder of the comparison; each run is in `METHOD/seed-N`.
        controls: Whether methods with branches bring their start and controls with as many steps along:
            without these, one cannot tell the gain of an objective from that of averaging or longer training.

    Returns:
        The runs, seed by seed, for `train_many`. The branches of a seed share their first phase.

    Raises:
        RecipeError: If a key or a value is wrong; no folder is made then.
        RunError: If a folder has a run of another recipe, or methods would see different numbers of rows.
    """
    fragments = {method: _of_method(fragment, method) for method in methods}
    branched = [recipe for recipe in map(resolve, fragments.values()) if recipe.branches]
    if controls and branched:
        fragments = {"ce": _of_method(fragment, "ce"), **fragments, **_controls(branched[0], fragment)}
    wanted = {
        f"{folder_name(method)}/seed-{seed}": resolve(merge(chosen, {"seed": seed}))
        for seed in range(seeds)
        for method, chosen in fragments.items()
    }
    check_fair(list(wanted.values()))
    if not all(recipe.training.test for recipe in wanted.values()):
        raise RunError("methods are compared on test rows: set training.test=true")
    planned = []
    for name, recipe in wanted.items():
        start = next((other for other, one in wanted.items() if one == recipe.pretrain), None)
        if start is not None:  # one of the others is its first phase
            recipe = replace(recipe, pretrain=None, init_from=str((folder / start).resolve()))
        planned.append(PlannedRun(name, Run.find(folder / name, recipe), after=start))
    return planned


def _of_method(fragment: Fragment, method: str) -> Fragment:
    """The fragment with a method; branches that it states go to methods that have branches."""
    chosen = merge(fragment, {"method": method})
    if "branches" not in method_of(method).defaults:
        chosen.pop("branches", None)
    return chosen


def _controls(recipe: Recipe, fragment: Fragment) -> dict[str, Fragment]:
    """CE with as many steps as a recipe with branches: an average of as many branches, and one long branch.

    They branch, and are averaged with the start, under the same conditions.
    """
    count = sum(not branch.fresh for branch in recipe.branches.values())
    share = sum(branch.training.length for branch in recipe.branches.values()) / recipe.training.length
    same = {
        key: value
        for key, value in asdict(recipe.soup).items()
        if key not in ("share", "rule") and not key.startswith("fresh")
    }
    average = {f"ce-{number}": CONTROL for number in range(1, count + 1)}
    soups = {
        "ce-average": {"branches": average, "soup": {**same, "share": share / count, "rule": "uniform"}},
        "ce-longer": {"branches": {"ce": CONTROL}, "soup": {**same, "share": share}},
    }
    shared = {key: value for key, value in fragment.items() if key not in ("branches", "soup")}
    return {method: {**shared, "method": method, **own} for method, own in soups.items()}


def check_fair(recipes: Sequence[Recipe], but: Sequence[str] = ()) -> None:
    """Refuse to compare runs that differ in data, network, rows per step, steps or selection.

    `but` names what may differ: `"model"`, `"rows per step"`, `"steps"`.
    """
    for name, seen in (
        ("data", {json.dumps(recipe.data) for recipe in recipes}),
        ("model", {json.dumps(recipe.model) for recipe in recipes}),
        ("rows per step", {str(rows_per_step(recipe)) for recipe in recipes}),
        ("steps", {str((r.training.steps, r.training.epochs)) for r in recipes}),
        ("selection", {r.training.select for r in recipes}),
    ):
        if len(seen) > 1 and name not in but:
            raise RunError(
                f"not a fair comparison: {name} differs between methods: {'; '.join(sorted(seen))}"
            )


def summarize(runs: Sequence[Run]) -> dict[str, Any]:
    """Mean and standard deviation over seeds of each method's test metrics.

    Args:
        runs: Finished runs.

    Returns:
        For each method its metrics, the seconds of a run, the values of each seed, and why runs with branches
        trained only one of them.

    Raises:
        RunError: If a run is not finished, or a metric is not defined on its test rows.
    """
    summary: dict[str, Any] = {}
    for method in dict.fromkeys(run.recipe.method for run in runs):
        results = [run.result() for run in runs if run.recipe.method == method]
        entry: dict[str, Any] = {"title": method_of(method).title, "seeds": len(results)}
        for metric in shown_metrics(runs[0].recipe.training.select):
            values = [result["test"][metric] for result in results]
            if None in values:
                raise RunError(
                    "no task has both a positive and a negative among the test rows, so there is nothing to "
                    "compare: give the data another split"
                )
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            entry[metric] = {"mean": statistics.fmean(values), "std": spread, "values": values}
        entry["seconds"] = statistics.fmean(result["seconds"] for result in results)
        entry["unbranched"] = [note for result in results if (note := unbranched_note(result))]
        entry["steps"] = statistics.fmean(result["steps"] for result in results)
        summary[method] = entry
    return summary


def comparison_table(summary: dict[str, Any], recipe: Recipe) -> Any:
    """The table (rich) of a comparison: a line per method, mean and standard deviation over seeds."""
    settings = recipe.training
    shown = shown_metrics(settings.select)
    columns = ["method", *column_titles(settings.max_fpr, settings.select), "steps", "s/run"]
    seeds = next(iter(summary.values()))["seeds"]
    rows = [
        [
            entry["title"],
            *(_mean_text(entry[metric], seeds) for metric in shown),
            f"{entry['steps']:,.0f}",
            f"{entry['seconds']:.0f}",
        ]
        for entry in summary.values()
    ]
    over = f"Mean (standard deviation) over {seeds} seeds of the mean" if seeds > 1 else "One seed, mean"
    caption = (
        f"{over} over tasks. Same network and rows per step for all; weights selected by validation "
        f"{settings.select}. {definition(settings.max_fpr, settings.select)}.{_unbranched(summary)}"
    )
    return make_table(f"{data_title(recipe.data)}: test rows", columns, rows, caption)


def _mean_text(found: dict[str, Any], seeds: int) -> str:
    """A mean and, if there are several seeds, its standard deviation."""
    mean = value_text(found["mean"])
    return f"{mean} ({value_text(found['std'])})" if seeds > 1 else mean


def _unbranched(summary: dict[str, Any]) -> str:
    """For which methods it was too early for branches, so that they may be the same, and why."""
    methods: dict[tuple[str, ...], list[str]] = {}
    for entry in summary.values():
        methods.setdefault(tuple(entry["unbranched"]), []).append(entry["title"])
    seeds = next(iter(summary.values()))["seeds"]
    return "".join(
        f" {' and '.join(titles)} ({len(notes)} of {seeds} seeds): {notes[0]}"
        for notes, titles in methods.items()
        if notes
    )


def plot_curves(runs: Sequence[Run], path: Path) -> None:
    """Draw validation metrics of runs on the same data: the mean and range over seeds against steps."""
    require("matplotlib", extra="training").use("Agg")
    plt = require("matplotlib.pyplot", extra="training")
    settings = runs[0].recipe.training
    shown = dict.fromkeys(("pauc", "auc", settings.select))
    figure, axes = plt.subplots(1, len(shown), figsize=(5.5 * len(shown), 4.2), constrained_layout=True)
    for panel, metric in zip(axes, shown, strict=True):
        for index, method in enumerate(dict.fromkeys(run.recipe.method for run in runs)):
            logs = [read_log(run.path) for run in runs if run.recipe.method == method]
            curves = [dict(validation_curve(log, metric)) for log in logs]
            # Runs that stopped early are shorter: the mean is over what all have.
            steps = [step for step in curves[0] if all(step in curve for curve in curves)]
            columns = [[curve[step] for curve in curves] for step in steps]
            means = [sum(column) / len(column) for column in columns]
            color = f"C{index}"
            panel.plot(steps, means, color=color, label=method_of(method).title)
            lows, highs = [min(column) for column in columns], [max(column) for column in columns]
            panel.fill_between(steps, lows, highs, color=color, alpha=0.15, linewidth=0)
        panel.set_xlabel("step")
        panel.set_ylabel(f"validation {METRICS[metric].title_at(settings.max_fpr)}")
        panel.grid(alpha=0.3)
    axes[0].legend()
    figure.suptitle(f"{data_title(runs[0].recipe.data)}: mean and range over seeds")
    with replacing(path) as place:
        figure.savefig(place, dpi=120, format="png")
    plt.close(figure)
