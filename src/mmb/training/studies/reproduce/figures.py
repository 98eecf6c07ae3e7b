"""The figure of a study, drawn from logs: means over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmb._extras import require
from mmb.training.studies.reproduce.logs import by_step, curve, logged, paths_of, start_of
from mmb.training.studies.reproduce.study import METRICS, Study

Line = tuple[list[float], list[float]]


def plot(study: Study, results: Path, path: Path) -> None:
    """Draw a study.

    The validation metric of every row against epochs and against seconds, once more from the end of the
    first phase on; of a study with panels, a column for each panel with the validation metric against steps
    and seconds, and the training loss against steps.
    """
    require("matplotlib", extra="training").use("Agg")
    plt = require("matplotlib.pyplot", extra="training")
    titles = {row: study.title_of(row, found[0]["method"]) for row, found in logged(study, results)}
    figure = _panels(plt, study, titles, results) if study.panels else _methods(plt, study, titles, results)
    figure.suptitle(study.title)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _methods(plt: Any, study: Study, titles: dict[str, str], results: Path) -> Any:
    """Above, the whole course; below, where rows have a first phase in common, what follows it."""
    place = 2 + list(METRICS).index(study.metric)
    paths = {row: paths_of(study, row, results) for row in titles}
    starts = {row: [start_of(path, study, results) for path in paths[row]] for row in titles}
    lines = 2 if any(start is not None for found in starts.values() for start in found) else 1
    figure, axes = plt.subplots(
        lines, 2, figsize=(11, 4.2 * lines), constrained_layout=True, sharey="row", squeeze=False
    )
    for index, (row, title) in enumerate(titles.items()):
        whole = [curve(path, start) for path, start in zip(paths[row], starts[row], strict=True)]
        after = [points[-len(curve(path, None)) :] for points, path in zip(whole, paths[row], strict=True)]
        for line, curves in zip(axes, (whole, after)[:lines], strict=True):
            for column, axis in enumerate(line):
                axis.plot(*_mean(curves, column, place), color=f"C{index % 10}", label=title, linewidth=1.2)
    for line in axes:
        line[0].set_ylabel(f"validation {METRICS[study.metric]}")
        for axis, label in zip(line, ("epochs", "seconds"), strict=True):
            axis.set_xlabel(label)
            axis.grid(alpha=0.3)
    axes[-1][1].legend(fontsize="small")
    return figure


def _panels(plt: Any, study: Study, titles: dict[str, str], results: Path) -> Any:
    shown = [("step", study.metric), ("seconds", study.metric), ("step", "loss")]
    size = (5.5 * len(study.panels), 3.2 * len(shown))
    figure, axes = plt.subplots(
        len(shown), len(study.panels), figsize=size, constrained_layout=True, sharey="row", squeeze=False
    )
    for column, (title, rows) in enumerate(study.panels.items()):
        axes[0][column].set_title(title)
        for line, (across, up) in enumerate(shown):
            axis = axes[line][column]
            for index, row in enumerate(row for row in rows if row in titles):
                points = [_points(path, across, up) for path in paths_of(study, row, results)]
                axis.plot(*_mean(points, 0, 1), color=f"C{index}", label=titles[row], linewidth=1.2)
            axis.set_xlabel("steps" if across == "step" else across)
            axis.set_ylabel("training loss" if up == "loss" else f"validation {METRICS[up]}")
            axis.grid(alpha=0.3)
        axes[0][column].legend(fontsize="small")
    return figure


def _points(path: Path, across: str, up: str) -> list[list[float]]:
    return [[record[across], record[up]] for record in by_step(path) if up in record]


def _mean(curves: Sequence[Sequence[Sequence[float]]], across: int, up: int) -> Line:
    """Mean over seeds of two columns, point by point, as far as all seeds go."""
    length = min(map(len, curves))
    first, second = (
        [statistics.fmean(points[k][column] for points in curves) for k in range(length)]
        for column in (across, up)
    )
    return first, second
