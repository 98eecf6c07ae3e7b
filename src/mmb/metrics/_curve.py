"""The points of ROC curves, for plots."""

from typing import NamedTuple

import torch
from torch import Tensor

from mmb.metrics._keys import decode
from mmb.metrics._ranking import sort


class RocCurve(NamedTuple):
    """ROC curves as broken lines: `[k]` tensors for one task, `[m, k]` for m tasks.

    Tasks differ in the number of points; a shorter curve repeats its last point, (1, 1), unseen in plots.
    Rates are float64; `thresholds` has the scores' own dtype, or float64 for integer scores.
    """

    fpr: Tensor
    tpr: Tensor
    thresholds: Tensor


def roc_curve(scores: Tensor, labels: Tensor) -> RocCurve:
    """Corner points of each task's ROC curve, from (0, 0) at threshold infinity to (1, 1).

    A row is called positive at a threshold if its score is at least the threshold. Points on a straight line
    between their neighbors are left out: it is the same curve with the fewest points. A task without a
    negative has NaN false positive rates, one without a positive NaN true positive rates.

    Args:
        scores: `[n]` or `[n, m]`; higher means more likely positive.
        labels: same shape; 1, 0 or missing (NaN, or -1 in integers).

    Returns:
        `RocCurve` of `[k]` or `[m, k]` tensors.

    Raises:
        TypeError: an argument is not a tensor of a supported dtype.
        ValueError: as for `roc_auc`.
    """
    entries = sort(scores, labels)
    ends = entries.labeled.cumsum(0)
    begins = ends - entries.labeled
    # a point for each score: after the last entry with it
    stops = (~entries.ties_next()).nonzero().squeeze(1)
    points = torch.searchsorted(stops, ends).diff(prepend=ends.new_zeros(1))  # of each task, without (0, 0)
    task = torch.repeat_interleave(points)
    called = stops + 1 - begins[task]  # how many entries are called positive
    passed = torch.nn.functional.pad(entries.positive.cumsum(0), (1, 0))
    tp = passed[stops + 1] - passed[begins][task]

    first, last = points.cumsum(0) - points, points.cumsum(0) - 1
    run, rise = _steps(called - tp, first, points), _steps(tp, first, points)
    corner = torch.ones_like(stops, dtype=torch.bool)
    corner[:-1] = run[1:] * rise[:-1] != run[:-1] * rise[1:]
    corner[last[points > 0]] = True
    kept = corner.nonzero().squeeze(1)

    kept_ends = torch.searchsorted(kept, points.cumsum(0))
    count = kept_ends.diff(prepend=ends.new_zeros(1))
    column = torch.arange(int(count.max()) + 1, device=ends.device).minimum(count[:, None])  # 0 is (0, 0)
    chosen = kept[(kept_ends - count)[:, None].add(column - 1).clamp(min=0)]
    called, tp = (values[chosen].masked_fill(column == 0, 0) for values in (called, tp))
    positives = (passed[ends] - passed[begins])[:, None].double()
    curve = RocCurve(
        fpr=(called - tp) / (entries.labeled[:, None] - positives),
        tpr=tp / positives,
        thresholds=decode(entries.keys[stops[chosen]], scores.dtype).masked_fill(column == 0, torch.inf),
    )
    return RocCurve(*(points.squeeze(0) for points in curve)) if entries.one_task else curve


def _steps(values: Tensor, first: Tensor, points: Tensor) -> Tensor:
    """Differences of the values to the ones before, of each task's first to zero."""
    steps = values.diff(prepend=values.new_zeros(1))
    first = first[points > 0]
    steps[first] = values[first]
    return steps
