"""Runs in training, as their logs show them: curves, a verdict so far, the time left."""

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

from mmb.metrics import METRICS, MetricName
from mmb.metrics.titles import shown_metrics
from mmb.report.check import Check, verdict_of
from mmb.report.curve_checks import check_divergence, check_shape, curve_values
from mmb.report.curves import log_curves
from mmb.report.run_groups import find_runs, methods_of, phases_of, run_names
from mmb.training import Run
from mmb.training.runs.log import planned_steps, read_log
from mmb.training.runs.run import data_title

_SILENT = 60.0  # seconds without a line, or three times the longest pause so far
_GAIN = 0.02  # of a validation metric, from which on a run has learned something


class LiveRuns:
    """The runs in some folders, also those that appear later. Only logs and results are read."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._opened: dict[Path, Run] = {}
        self._logs: dict[Path, tuple[Any, list[dict[str, Any]]]] = {}
        self.content()  # so that a folder without runs is refused

    def content(self) -> dict[str, Any]:
        """What the page shows now, plain JSON."""
        runs = find_runs(self._paths, self._opened)
        methods, member = methods_of(runs)
        shown = []
        for run, name, kind in zip(runs, run_names(runs, methods, member), member, strict=True):
            shown += [
                {"name": f"{name}, {phase.path.name}", "method": kind, **self._run(phase)}
                for phase in phases_of(run, self._opened)
            ]
            shown.append({"name": name, "method": kind, **self._run(run)})
        settings = runs[0].recipe.training
        return {
            "title": f"{data_title(runs[0].recipe.data)}: {len(runs)} run{'s' * (len(runs) != 1)}",
            "select": settings.select,
            "titles": {metric: METRICS[metric].title for metric in shown_metrics(settings.select)},
            "methods": methods,
            "runs": shown,
            "finished": sum(run["state"] == "finished" for run in shown),
            "seconds_left": all_left(shown),
        }

    def _run(self, run: Run) -> dict[str, Any]:
        finished = run.finished  # before the log, which then is whole
        log, age = self._log(run.path)
        left = None if finished else seconds_left(log)
        state = "finished" if finished else state_of(log, age)
        select = run.recipe.training.select
        curve = curve_values(log, select)
        return {
            "state": state,
            "step": log[-1]["step"] if log else 0,
            "steps": planned_steps(log),
            "seconds": next((line["seconds"] for line in reversed(log) if "seconds" in line), None),
            "seconds_left": left if state == "training" else None,
            "best": METRICS[select].gain(max(METRICS[select].gain(value) for value in curve))
            if curve
            else None,
            "curves": log_curves(log),
            **verdict_so_far(log, select, finished, averaged=bool(run.recipe.branches)),
        }

    def _log(self, folder: Path) -> tuple[list[dict[str, Any]], float]:
        """The lines of a run's log, read again only if the file has changed, and its age in seconds."""
        try:
            found = (folder / "metrics.jsonl").stat()
        except OSError:  # not begun
            return [], 0.0
        stamp = (found.st_mtime_ns, found.st_size)
        if folder not in self._logs or self._logs[folder][0] != stamp:
            self._logs[folder] = stamp, read_log(folder)
        return self._logs[folder][1], time.time() - found.st_mtime


def state_of(log: Sequence[dict[str, Any]], age: float) -> str:
    """What a run without a result does: "waiting", "training", "failed", or "silent" for long."""
    if not log:
        return "waiting"
    if log[-1]["kind"] == "error":
        return "failed"
    times = [line["seconds"] for line in log if "seconds" in line]
    longest = max((later - earlier for earlier, later in pairwise(times)), default=0.0)
    return "silent" if age > max(_SILENT, 3 * longest) else "training"


def seconds_left(log: Sequence[dict[str, Any]]) -> float | None:
    """Time until the last step, by the pace of the last quarter of the lines; None if it is not known."""
    lines = [line for line in log if "seconds" in line]
    steps = planned_steps(log)
    if steps is None or len(lines) < 2:
        return None
    first, last = lines[-max(2, len(lines) // 4)], lines[-1]
    if last["step"] <= first["step"]:
        first = lines[0]
    done = last["step"] - first["step"]
    if done <= 0:
        return None
    return round((steps - last["step"]) * (last["seconds"] - first["seconds"]) / done, 1)


def all_left(runs: Sequence[dict[str, Any]]) -> float | None:
    """Time until all runs are finished, if as many train at a time as now; None if it is not known.

    A run that has not begun is expected to take as long as those of its method, or else of all methods.
    """
    training = [run for run in runs if run["state"] == "training"]
    if not training or any(run["seconds_left"] is None for run in training):
        return None

    def whole(method: int | None) -> list[float]:
        return [
            run["seconds"] + (run["seconds_left"] or 0)
            for run in runs
            if run["state"] in ("training", "finished") and run["seconds"] and method in (None, run["method"])
        ]

    left = [run["seconds_left"] for run in training]
    for run in runs:
        if run["state"] == "waiting":
            left.append(mean(whole(run["method"]) or whole(None) or [0.0]))
    return round(max(max(left), sum(left) / len(training)), 1)


def verdict_so_far(
    log: Sequence[dict[str, Any]], select: MetricName, finished: bool, averaged: bool = False
) -> dict[str, Any]:
    """What the log alone shows, as `verdict_of` gives it; only a report sees training and test rows.

    If the run is `averaged` from branches, its last evaluation is that of the average.
    """
    return verdict_of(list(_checks(log, select, finished, averaged)), _good(log, select, finished))


def _checks(
    log: Sequence[dict[str, Any]], select: MetricName, finished: bool, averaged: bool
) -> Iterator[Check]:
    diverged = list(check_divergence(log))
    yield from diverged
    curve = curve_values(log, select)
    if log and log[-1]["kind"] == "error" and not diverged:
        text = f"{log[-1]['error']}: {log[-1]['message']}"
        yield Check("bad", "it ended with an error", text, text)
    elif len(curve) < 2 and not diverged:
        yield Check("unknown", f"{len(curve)} evaluation{'s' * (len(curve) != 1)} so far", "Wait for more.")
    elif not diverged:
        gains = [METRICS[select].gain(value) for value in curve]
        late = 2 * log[-1]["step"] > (planned_steps(log) or 0)
        if max(gains) - gains[0] < _GAIN and late:
            text = f"The validation {METRICS[select].title} was {curve[0]:.3f} at the start."
            advice = "Unless the start was good already: another optimizer.lr, or method=ce to compare."
            yield Check("remark", "it has not improved on its start", text, advice)
        else:
            half = gains[len(gains) // 2 :]
            noise = min(_GAIN, median([abs(b - a) for a, b in pairwise(half)] or [0.0]))
            if len(trained := curve[:-1] if averaged else curve) > 1:
                yield from check_shape(trained, noise, select, finished)


def _good(log: Sequence[dict[str, Any]], select: MetricName, finished: bool) -> str:
    curve = curve_values(log, select)
    change = f"{curve[0]:.3f} to {curve[-1]:.3f}" if curve else ""
    said = f"validation {METRICS[select].title} from {change}"
    return f"Finished: {said}. `mmb report` judges it." if finished else f"Working so far: {said}."
