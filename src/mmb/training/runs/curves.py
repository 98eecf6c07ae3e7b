"""Learning curves as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmb._extras import require
from mmb.training.recipes.presets import METHODS
from mmb.training.runs.log import read_log
from mmb.training.runs.run import Run

_PANELS = {"pauc": "validation partial AUC (FPR <= {max_fpr:g})", "auc": "validation AUC"}


def plot_curves(runs: Sequence[Run], path: Path) -> None:
    """Draw validation metrics against steps: for each method the mean over seeds, and their range.

    Args:
        runs: Runs of one or more methods on the same data.
        path: PNG file to write.
    """
    require("matplotlib", extra="training").use("Agg")
    plt = require("matplotlib.pyplot", extra="training")
    figure, axes = plt.subplots(1, len(_PANELS), figsize=(11, 4.2), constrained_layout=True)
    for panel, (metric, title) in zip(axes, _PANELS.items(), strict=True):
        for index, method in enumerate(dict.fromkeys(run.recipe.method for run in runs)):
            curves = [_curve(run, metric) for run in runs if run.recipe.method == method]
            # Runs that stopped early are shorter: the mean is over what all have.
            steps = [step for step in curves[0] if all(step in curve for curve in curves)]
            columns = [[curve[step] for curve in curves] for step in steps]
            means = [sum(column) / len(column) for column in columns]
            color = f"C{index}"
            panel.plot(steps, means, color=color, label=METHODS[method].title)
            lows, highs = [min(column) for column in columns], [max(column) for column in columns]
            panel.fill_between(steps, lows, highs, color=color, alpha=0.15, linewidth=0)
        panel.set_xlabel("step")
        panel.set_ylabel(title.format(max_fpr=runs[0].recipe.training.max_fpr))
        panel.grid(alpha=0.3)
    axes[0].legend()
    figure.suptitle(f"{runs[0].recipe.data['name']}: mean and range over seeds")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _curve(run: Run, metric: str) -> dict[int, Any]:
    return {record["step"]: record[metric] for record in read_log(run.path) if record["kind"] == "valid"}
