"""Numbers and ROC curves as the page gets them: rounded, and small."""

import base64
import math
from typing import Any

import torch
from torch import Tensor

from mmb.metrics import roc_curve

POINTS = 100
"""Largest number of points of a curve, four bytes each."""


def rounded(values: Any, digits: int = 5) -> Any:
    """A tensor as nested lists, or a number, with some decimal places; None for NaN and infinity."""
    if isinstance(values, Tensor):
        values = values.tolist()
    if isinstance(values, list):
        return [rounded(item, digits) for item in values]
    if isinstance(values, float):
        return round(values, digits) if math.isfinite(values) else None
    return values


def page_curves(scores: Tensor, labels: Tensor, max_fpr: float) -> list[str | None]:
    """ROC curves in base64: pairs of little-endian uint16, 65535 for a rate of 1; None if a task has none."""
    fpr, tpr = thin_curves(scores, labels, max_fpr)
    codes = (torch.stack([fpr, tpr], 2) * 65535).round()  # [m, points, 2]
    there = codes.isfinite().flatten(1).all(1)
    codes = codes.where(there[:, None, None], 0).to(torch.int32)
    # A curve that ends early repeats its last point, which the page does not need.
    last = (codes != 65535).any(2).sum(1) + 1
    raw = torch.stack([codes & 255, codes >> 8], 3).to(torch.uint8).flatten(1).numpy()
    size = (4 * last.clamp(max=codes.shape[1])).tolist()
    return [
        base64.b64encode(line[:end].tobytes()).decode() if known else None
        for line, end, known in zip(raw, size, there.tolist(), strict=True)
    ]


def thin_curves(scores: Tensor, labels: Tensor, max_fpr: float) -> tuple[Tensor, Tensor]:
    """False and true positive rates, `[m, k]` with k at most `POINTS`; NaN for tasks without a curve.

    A curve with more corners than that is replaced by points at equal steps along it, by the measure
    `FPR + TPR`: half of them up to `max_fpr`, half beyond. A cut corner costs at most an eighth of the
    square of a step in area, and corners on both sides cancel.
    """
    curve = roc_curve(scores, labels)
    fpr, tpr = curve.fpr, curve.tpr
    corners = (fpr + tpr < 2).sum(1) + 1
    if fpr.shape[1] <= POINTS:
        return fpr, tpr
    along = (fpr + tpr).nan_to_num(0.0)  # never falls
    middle = along.where(fpr <= max_fpr, 0.0).amax(1, keepdim=True)
    share = torch.linspace(0, 1, POINTS // 2, dtype=torch.float64)
    rest = torch.linspace(0, 1, POINTS - POINTS // 2 + 1, dtype=torch.float64)[1:]
    wanted = torch.cat([middle * share, middle + (2 - middle) * rest], 1)
    right = torch.searchsorted(along, wanted).clamp(1, along.shape[1] - 1)
    start, end = along.gather(1, right - 1), along.gather(1, right)
    weight = ((wanted - start) / (end - start)).nan_to_num(0.0)
    few = corners[:, None] <= POINTS
    thinned = [
        torch.where(few, rate[:, :POINTS], rate.gather(1, right - 1).lerp(rate.gather(1, right), weight))
        for rate in (fpr, tpr)
    ]
    return thinned[0], thinned[1]
