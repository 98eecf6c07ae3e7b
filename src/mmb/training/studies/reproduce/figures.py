"""The figure of a study, drawn from logs: means over seeds."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmb._atomic_files import replacing
from mmb._extras import require
from mmb.metrics import METRICS
from mmb.training.studies.reproduce.logs import LoggedRun
from mmb.training.studies.reproduce.study import TableStudy

Curve = Sequence[Mapping[str, float]]
Runs = Mapping[str, Sequence[LoggedRun]]


def plot(study: TableStudy, runs: Runs, path: Path) -> None:
    """Draw a study.

    The validation metric of every row against epochs and against seconds, once more from the end of the
    first phase on; of a study with panels, a column for each panel with the validation metric against steps
    and seconds, and the training loss against steps. The same metric on training rows, if it was logged.
    """
    require("matplotlib", extra="training").use("Agg")
    plt = require("matplotlib.pyplot", extra="training")
    figure = (_panels if study.panels else _methods)(plt, study, runs)
    figure.suptitle(study.title)
    with replacing(path) as place:
        figure.savefig(place, dpi=120, format="png")
    plt.close(figure)


def _methods(plt: Any, study: TableStudy, runs: Runs) -> Any:
    """Above, the whole course; below, where rows have a first phase in common, what follows it."""
    shown: list[tuple[str, bool]] = [(study.metric, False)]
    shown += [(study.metric, True)] if any(run.start for row in runs.values() for run in row) else []
    shown += [(name, True) for name in _on_training_rows(study, runs)]
    figure, axes = _subplots(plt, len(shown), 2, 4.2)
    for line, (up, after) in zip(axes, shown, strict=True):
        for axis, across in zip(line, ("epoch", "seconds"), strict=True):
            for index, (row, found) in enumerate(runs.items()):
                curves = [run.curve[len(run.start.curve) if after and run.start else 0 :] for run in found]
                points = [[point for point in curve if up in point] for curve in curves]
                _draw(axis, index, _title(study, row, found), points, across, up)
        _label(line[0], "epochs", _measured(study, up))
        _label(line[1], "seconds", "")
    axes[-1][1].legend(fontsize="small")
    return figure


def _panels(plt: Any, study: TableStudy, runs: Runs) -> Any:
    """A column for each panel; its rows: the metric over steps and seconds, the loss over steps."""
    shown = [("step", study.metric), ("seconds", study.metric), ("step", "loss")]
    shown += [("step", name) for name in _on_training_rows(study, runs)]
    figure, axes = _subplots(plt, len(shown), len(study.panels), 3.2)
    for column, (title, rows) in enumerate(study.panels.items()):
        axes[0][column].set_title(title)
        for line, (across, up) in enumerate(shown):
            axis = axes[line][column]
            for index, row in enumerate(row for row in rows if row in runs):
                points = [[point for point in run.by_step if up in point] for run in runs[row]]
                _draw(axis, index, _title(study, row, runs[row]), points, across, up)
            _label(axis, "steps" if across == "step" else across, _measured(study, up))
        axes[0][column].legend(fontsize="small")
    return figure


def _subplots(plt: Any, lines: int, columns: int, height: float) -> Any:
    return plt.subplots(
        lines,
        columns,
        figsize=(5.5 * columns, height * lines),
        constrained_layout=True,
        sharey="row",
        squeeze=False,
    )


def _on_training_rows(study: TableStudy, runs: Runs) -> list[str]:
    """The metric of the study on training rows, if it was logged."""
    name = f"train_{study.metric}"
    return [name] if any(run.has(name) for found in runs.values() for run in found) else []


def _measured(study: TableStudy, up: str) -> str:
    if up == "loss":
        return "training loss"
    return f"{'training' if up.startswith('train_') else 'validation'} {METRICS[study.metric].title}"


def _title(study: TableStudy, row: str, runs: Sequence[LoggedRun]) -> str:
    return study.title_of(row, runs[0].result["method"])


def _draw(axis: Any, index: int, title: str, curves: Sequence[Curve], across: str, up: str) -> None:
    """Draw the mean over seeds of two columns, point by point, as far as all seeds go."""
    length = min(map(len, curves))
    means = (
        [statistics.fmean(curve[k][key] for curve in curves) for k in range(length)] for key in (across, up)
    )
    axis.plot(*means, color=f"C{index % 10}", label=title, linewidth=1.2)


def _label(axis: Any, across: str, up: str) -> None:
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    axis.grid(alpha=0.3)
