"""The points of ROC curves, for plots."""

from typing import NamedTuple

import torch
from torch import Tensor

from mmb.metrics._ranking import decode, sort


class RocCurve(NamedTuple):
    """ROC curves as broken lines: `[k]` tensors for one task, `[m, k]` for m tasks.

    Tasks differ in the number of points; a shorter curve repeats its last point, (1, 1), which no plot shows.
    Rates are float64; `thresholds` has the scores' own dtype, or float64 for integer scores.
    """

    fpr: Tensor
    tpr: Tensor
    thresholds: Tensor


def roc_curve(scores: Tensor, labels: Tensor) -> RocCurve:
    """Corner points of each task's ROC curve, from (0, 0) at threshold infinity to (1, 1).

    A row is called positive at a threshold if its score is at least the threshold. Points on a straight line
    between their neighbours are left out: it is the same curve with the fewest points. A task without a
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
    keys, labelled = entries.keys, entries.labelled[:, None]
    called = torch.arange(keys.shape[1] + 1, device=keys.device)  # how many entries are called positive
    tp = torch.nn.functional.pad(entries.positive.cumsum(1), (1, 0))
    tie_ends = torch.ones_like(tp, dtype=torch.bool)
    tie_ends[:, 1:-1] = keys[:, 1:] != keys[:, :-1]
    called = _columns_where(tie_ends & (called <= labelled))
    tp = tp.gather(1, called)
    run, rise = (called - tp).diff(dim=1), tp.diff(dim=1)
    corner = torch.ones_like(tp, dtype=torch.bool)
    corner[:, 1:-1] = run[:, 1:] * rise[:, :-1] != run[:, :-1] * rise[:, 1:]
    corner[:, 1:] |= called[:, 1:] == labelled
    corner[:, 1:] &= called[:, 1:] != called[:, :-1]  # the repeats that fill a shorter row
    kept = _columns_where(corner)
    called, tp = called.gather(1, kept), tp.gather(1, kept)
    thresholds = decode(keys.gather(1, (called - 1).clamp(min=0)), scores.dtype)
    positives = entries.positive.sum(1, keepdim=True).double()
    curve = RocCurve(
        fpr=(called - tp) / (labelled - positives),
        tpr=tp / positives,
        thresholds=thresholds.masked_fill(called == 0, torch.inf),
    )
    return RocCurve(*(points.squeeze(0) for points in curve)) if entries.one_task else curve


def _columns_where(keep: Tensor) -> Tensor:
    """Columns where each row of `keep` is true, in order, shorter rows repeating their last one."""
    row, column = keep.nonzero(as_tuple=True)
    count = keep.sum(1)
    end = count.cumsum(0)
    columns = column[end - 1, None].repeat(1, int(count.max()))
    columns[row, torch.arange(len(row), device=row.device) - (end - count)[row]] = column
    return columns
