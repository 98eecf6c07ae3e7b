"""How uncertain a metric of few rows is."""

from collections.abc import Callable

import torch
from torch import Tensor

from mmb.label_values import rarest_positive


def jackknife(
    metric: Callable[[Tensor, Tensor], Tensor], scores: Tensor, labels: Tensor, folds: int = 20
) -> Tensor:
    r"""Values of a metric whose mean is the metric and whose spread is its noise, for `greedy`.

    With $\theta$ the metric of all rows and $\theta_{-k}$ that of the rows outside of fold `k` of `K`, they
    are $K \theta - (K - 1) \theta_{-k}$ (Tukey's pseudo-values), moved by a constant so that their mean is
    $\theta$. Differences between two models on the same rows are paired, fold by fold. Use it for few tasks:
    with many, the values of the tasks are just as good and cost less.

    Args:
        metric: From scores and labels to a value for each task, such as `metrics.roc_auc`; the mean over
            tasks that have one is taken. Several metrics at once are `[metrics, m]`.
        scores: `[n]` or `[n, m]`.
        labels: The same shape: 0, 1, or missing (NaN in floating point, -1 in integers).
        folds: Number of folds; those rows that are positives of a task are spread evenly over them.

    Returns:
        float64 `[folds]`, or `[metrics, folds]`; all NaN if no task has a value.

    Raises:
        ValueError: If shapes differ, or there are fewer than two folds.
    """
    if folds < 2:
        raise ValueError(f"folds: expected at least 2, got {folds}")
    if scores.shape != labels.shape or labels.ndim not in (1, 2):
        raise ValueError(
            f"labels: expected the shape of the scores, [n] or [n, m], got {list(labels.shape)} and "
            f"{list(scores.shape)}"
        )
    scores, labels = (part.unsqueeze(1) if part.ndim == 1 else part for part in (scores, labels))
    rarest = rarest_positive(labels)
    fold = torch.empty_like(rarest)
    fold[rarest.argsort(stable=True)] = torch.arange(len(labels), device=labels.device) % folds
    whole = metric(scores, labels).double()
    without = torch.stack(
        [metric(scores[fold != number], labels[fold != number]).double() for number in range(folds)]
    )
    values = (folds * whole - (folds - 1) * without).nanmean(-1).movedim(0, -1)
    return values + (whole.nanmean(-1) - values.nanmean(-1)).unsqueeze(-1)
