"""What decisions and probabilities are worth on test rows, task by task."""

from typing import Any

import torch
from torch import Tensor

from mmb.metrics import operating_points
from mmb.metrics._binomial import clopper_pearson
from mmb.report.intervals import LEVEL
from mmb.report.page_values import rounded
from mmb.report.selected_scores import SelectedScores
from mmb.training.runs.calibrate import fit_calibration
from mmb.training.runs.scoring import decision_thresholds

_BINS = 8


def decided(scores: SelectedScores, max_fpr: float) -> dict[str, Any]:
    """Thresholds by validation rows, and the rates on test rows there, with exact intervals.

    A threshold keeps `max_fpr` on the validation rows. The `"promised"` one keeps it on new rows, with
    a confidence of 95%, and is None for tasks with too few negatives for that.
    """
    logits, labels = scores.logits["valid"], scores.labels["valid"]
    promised = torch.full(labels.shape[1:], torch.nan, dtype=torch.float64)
    if max_fpr < 1:
        promised = operating_points(logits, labels, max_fpr=max_fpr, confidence=LEVEL).threshold
    thresholds = torch.stack([decision_thresholds(logits, labels, [max_fpr])[0], promised])  # [2, m]
    called = scores.logits["test"] > thresholds.unsqueeze(1)  # [2, n, m]
    sides = torch.stack([scores.labels["test"] == sign for sign in (0, 1)])  # [2, n, m]
    count = (called.unsqueeze(1) & sides).sum(2)  # [thresholds, classes, m]
    number = sides.sum(1).expand_as(count)
    low, high = clopper_pearson(count.flatten(), number.flatten(), LEVEL)
    rates = {"": count / number, "_low": low.view_as(count), "_high": high.view_as(count)}
    found = {}
    for kind, start in enumerate(("", "promised_")):
        found[f"{start}threshold"] = rounded(thresholds[kind], 4)
        for side, name in enumerate(("fpr", "tpr")):
            for end, values in rates.items():
                known = values[kind, side].where(thresholds[kind].isfinite(), torch.nan)
                found[f"{start}{name}{end}"] = rounded(known)
    return found


def reliability(scores: SelectedScores) -> list[list[list[float]]]:
    """For each task, points of the reliability diagram of the probabilities that predictions have."""
    calibration = fit_calibration(scores.logits["valid"], scores.labels["valid"])
    return reliability_points(calibration(scores.logits["test"]), scores.labels["test"])


def reliability_points(probabilities: Tensor, labels: Tensor) -> list[list[list[float]]]:
    """For each task, up to eight points: mean probability, share of positives, number of rows.

    The labeled rows, by rising probability, are cut into bins of equal size.
    """
    count = (labels >= 0).sum(0)  # [m]
    ordered, order = probabilities.where(labels >= 0, torch.inf).sort(dim=0, stable=True)  # gaps go last
    positive = (labels == 1).gather(0, order).double()
    place = torch.arange(len(labels)).unsqueeze(1)
    which = (place * _BINS // count.clamp(min=1)).clamp(max=_BINS)  # [n, m]; gaps in one bin more
    shape = (_BINS + 1, labels.shape[1])
    rows, predicted, observed = (
        torch.zeros(shape, dtype=torch.float64).scatter_add_(0, which, values)
        for values in (torch.ones_like(ordered), ordered.where(ordered.isfinite(), 0.0), positive)
    )
    points = torch.stack([predicted / rows, observed / rows, rows], 2)[:_BINS]  # [bins, m, 3]
    return [
        [rounded(point, 3) for point in task if point[2] > 0] for task in points.transpose(0, 1).unbind(0)
    ]
