"""Everything the page shows, as plain data."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import mmb
from mmb._extras import require
from mmb.report.checks import Facts, check
from mmb.report.comparison import compare, samples
from mmb.report.intervals import Sample
from mmb.report.roc import page_curves
from mmb.report.runs import methods_of, run_names
from mmb.report.scores import Scores, run_scores
from mmb.report.values import numbers
from mmb.training import METHODS, Run, RunError
from mmb.training.loop import threshold_log
from mmb.training.loop.evaluate import decision_thresholds, rates_at, task_metrics
from mmb.training.recipes.resolution import to_plain
from mmb.training.runs.log import read_log

_SERIES = {
    "valid": ("auc", "pauc", "ap"),
    "train": ("loss", "gap", "dual_error", "gradient_norm"),
}


def page_content(runs: Sequence[Run], max_fpr: float | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Read, or compute, what a page on some runs shows.

    Args:
        runs: The runs; all on the same data.
        max_fpr: Limit of the partial AUC; that of the first run by default.
        say: Told what is being done.

    Returns:
        What is embedded in the page, plain JSON.

    Raises:
        RunError: If runs have different test rows or tasks, or none, or one has no checkpoint.
        ValueError: If `max_fpr` is outside (0, 1].
    """
    max_fpr = runs[0].recipe.training.max_fpr if max_fpr is None else max_fpr
    if not 0 < max_fpr <= 1:
        raise ValueError(f"max_fpr must be in (0, 1], got {max_fpr}")
    scores = []
    for run in runs:
        say(f"scores of {run.path}")
        scores.append(run_scores(run))
        _check_same(runs[0], scores[0], run, scores[-1])
    methods, member = methods_of(runs)
    names = run_names(runs, methods, member)
    labels = scores[0].labels["test"]
    if not bool((labels >= 0).any()):
        raise RunError(
            f"the data of the run in {runs[0].path} has no labelled test rows, and those are what a page is "
            f"about: give the data another split"
        )
    areas = [samples(found.logits["test"], labels, max_fpr) for found in scores]
    compared = compare(areas, member, labels)
    shown = [
        {"name": name, "method": kind, **run_content(run, found, area, max_fpr)}
        for run, found, area, name, kind in zip(runs, scores, areas, names, member, strict=True)
    ]
    return {
        "data": runs[0].recipe.data["name"],
        "version": mmb.__version__,
        "written": _time(datetime.datetime.now().timestamp()),
        "max_fpr": max_fpr,
        "select": runs[0].recipe.training.select,
        "sizes": scores[0].sizes,
        "tasks": {
            "name": scores[0].task_names,
            "train_positives": scores[0].train_counts[0].tolist(),
            "train_negatives": scores[0].train_counts[1].tolist(),
            "test_positives": (labels == 1).sum(0).tolist(),
            "test_negatives": (labels == 0).sum(0).tolist(),
        },
        "methods": [
            {"name": name, **facts, "runs": member.count(k)}
            for k, (name, facts) in enumerate(zip(methods, compared["methods"], strict=True))
        ],
        "pairs": compared["pairs"],
        "runs": shown,
    }


def run_content(run: Run, scores: Scores, areas: dict[str, Sample], max_fpr: float) -> dict[str, Any]:
    """What the page shows of one run."""
    logits, labels = scores.logits["test"], scores.labels["test"]
    thresholds = decision_thresholds(scores.logits["valid"], scores.labels["valid"], [max_fpr])[0]
    fpr, tpr = (rate.where(thresholds.isfinite(), torch.nan) for rate in rates_at(logits, labels, thresholds))
    found = task_metrics(logits, labels, max_fpr)
    tasks = {name: numbers(values) for name, values in found.items()}
    highest = torch.empty(0)
    for name, sample in areas.items():
        low, high = sample.estimate().share_interval()
        tasks |= {f"{name}_low": numbers(low), f"{name}_high": numbers(high)}
        highest = high if name == "auc" else highest
    tasks |= {"threshold": numbers(thresholds, 4), "fpr": numbers(fpr), "tpr": numbers(tpr)}
    log = read_log(run.path)
    tracked = threshold_log.read(run.path) or scores.tracked
    return {
        "facts": run_facts(run, scores, log),
        "recipe": require("yaml", extra="training").safe_dump(to_plain(run.recipe), sort_keys=False),
        "means": {name: numbers(values.nanmean()) for name, values in found.items()},
        "curves": _curves(log),
        "tasks": tasks,
        "roc": page_curves(logits, labels, max_fpr),
        "tracked": _tracked(tracked),
        **check(Facts(run, log, scores, max_fpr, tracked, fpr, highest)),
    }


def run_facts(run: Run, scores: Scores, log: Sequence[dict[str, Any]]) -> dict[str, str]:
    """What was run, where, when and with what."""
    recipe = run.recipe
    rows = ", ".join(f"{count} {part}" for part, count in scores.sizes.items())
    facts = {
        "method": METHODS[recipe.method].title,
        "data": f"{recipe.data['name']}: {rows} rows, {len(scores.task_names)} tasks",
        "network": ", ".join(f"{key} {value}" for key, value in recipe.model.items() if key != "name"),
        "seed": str(recipe.seed),
        "folder": str(run.path),
    }
    facts["network"] = f"{recipe.model['name']}" + (f" ({facts['network']})" if facts["network"] else "")
    planned = next((record.get("steps") for record in log if record["kind"] == "start"), None)
    done = log[-1]["step"] if log else 0
    facts["steps"] = f"{done} of {planned}" if planned else str(done)
    facts["weights"] = f"of step {scores.step}, selected by validation {recipe.training.select}"
    seconds = next((record["seconds"] for record in reversed(log) if record.get("seconds")), None)
    if run.finished:
        result = run.result()
        seconds = result["seconds"]
        facts["device"] = result["device"]
        facts["versions"] = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
        facts["result written"] = _time((run.path / "result.json").stat().st_mtime)
    if seconds is not None:
        facts["time"] = f"{datetime.timedelta(seconds=round(seconds))} (h:mm:ss)"
    return facts


def _check_same(one: Run, first: Scores, other: Run, scores: Scores) -> None:
    """Refuse to put runs side by side that were judged on different rows."""
    same = scores.task_names == first.task_names and torch.equal(scores.labels["test"], first.labels["test"])
    if not same:
        raise RunError(
            f"the runs in {one.path} and {other.path} have different test rows or tasks, so they cannot be "
            f"compared: write a page for each"
        )


def _curves(log: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Columns of the log, by what the lines are about."""
    curves = {}
    for kind, wanted in _SERIES.items():
        lines = _spaced([record for record in log if record["kind"] == kind], 1000)
        present = [name for name in ("step", "seconds", *wanted) if any(name in line for line in lines)]
        curves[kind] = {name: [_short(line.get(name)) for line in lines] for name in present}
    return curves


def _tracked(tracked: dict[int, threshold_log.Tracked]) -> dict[str, Any]:
    """Thresholds and quantiles, a list per step of a number per task; shares above them at the last step."""
    steps = _spaced(sorted(tracked), 50)
    over_time = {
        name: [_column(getattr(tracked[step], name)) for step in steps] for name in ("tracked", "quantile")
    }
    at_end = {
        name: _column(getattr(tracked[steps[-1]], name)) if steps else [] for name in ("rate", "soft_rate")
    }
    return {"step": steps, **over_time, **at_end}


def _column(values: Tensor) -> Any:
    return numbers(values.double(), 3)


def _spaced(items: Sequence[Any], most: int) -> list[Any]:
    """At most so many of some items, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
