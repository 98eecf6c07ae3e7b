"""ROC curves small enough for a page: at most 200 points a task, four bytes each."""

from __future__ import annotations

import base64

import torch
from torch import Tensor

from mmb.metrics import roc_curve

POINTS = 200


def page_curves(scores: Tensor, labels: Tensor, max_fpr: float) -> list[str | None]:
    """The ROC curve of each task as base64: pairs of little-endian uint16, 65535 standing for a rate of 1.

    Args:
        scores: `[n, m]`.
        labels: `[n, m]` with -1 for missing.
        max_fpr: Up to here the curve gets half of its points.

    Returns:
        One text per task; None for tasks without a curve.
    """
    fpr, tpr = thin(scores, labels, max_fpr)
    codes = (torch.stack([fpr, tpr], 2) * 65535).round()  # [m, points, 2]
    there = codes.isfinite().flatten(1).all(1)
    codes = codes.where(there[:, None, None], 0).to(torch.int32)
    # A curve that ends early repeats its last point: the page does not need to know.
    last = (codes != 65535).any(2).sum(1) + 1
    raw = torch.stack([codes & 255, codes >> 8], 3).to(torch.uint8).flatten(1).numpy()
    size = (4 * last.clamp(max=codes.shape[1])).tolist()
    return [
        base64.b64encode(line[:end].tobytes()).decode() if known else None
        for line, end, known in zip(raw, size, there.tolist(), strict=True)
    ]


def thin(scores: Tensor, labels: Tensor, max_fpr: float, points: int = POINTS) -> tuple[Tensor, Tensor]:
    """ROC curves of at most `points` points, for plots.

    A curve with more corners than that is replaced by points at equal steps along it, by the measure
    `FPR + TPR`: half of them up to `max_fpr`, half beyond. A cut corner costs at most an eighth of the
    square of a step in area, and corners to both sides cancel.

    Args:
        scores: `[n, m]`.
        labels: `[n, m]` with -1 for missing.
        max_fpr: Where the two halves meet.
        points: How many points are left.

    Returns:
        False and true positive rates, `[m, k]` with k at most `points`; NaN for tasks without a curve.
    """
    curve = roc_curve(scores, labels)
    fpr, tpr = curve.fpr, curve.tpr
    corners = (fpr + tpr < 2).sum(1) + 1
    if fpr.shape[1] <= points:
        return fpr, tpr
    along = (fpr + tpr).nan_to_num(0.0)  # never falls
    middle = along.where(fpr <= max_fpr, 0.0).amax(1, keepdim=True)
    share = torch.linspace(0, 1, points // 2, dtype=torch.float64)
    rest = torch.linspace(0, 1, points - points // 2 + 1, dtype=torch.float64)[1:]
    wanted = torch.cat([middle * share, middle + (2 - middle) * rest], 1)
    right = torch.searchsorted(along, wanted).clamp(1, along.shape[1] - 1)
    start, end = along.gather(1, right - 1), along.gather(1, right)
    weight = ((wanted - start) / (end - start)).nan_to_num(0.0)
    few = corners[:, None] <= points
    thinned = [
        torch.where(few, rate[:, :points], rate.gather(1, right - 1).lerp(rate.gather(1, right), weight))
        for rate in (fpr, tpr)
    ]
    return thinned[0], thinned[1]
