"""Rates at an operating point: one rate at its best while the other is within a limit.

A threshold calls every row positive whose score is at least the threshold, so tied rows are called together:
no rate is interpolated, and each value is one that a threshold attains.
"""

from torch import Tensor

from mmb._numbers import check_range
from mmb.metrics._ranking import TaskRanks, rank, sort


def tpr_at_fpr(scores: Tensor, labels: Tensor, max_fpr: float = 0.1) -> Tensor:
    """Largest true positive rate of each task at a false positive rate within a limit.

    With N negatives, it is the share of positives p with `fp(p) / N <= max_fpr`: recall at a specificity of
    `1 - max_fpr`, the largest `tpr[fpr <= max_fpr]` of `sklearn.metrics.roc_curve`.

    Args:
        scores: `[n]` or `[n, m]`; higher means more likely positive.
        labels: same shape; 1, 0 or missing (NaN, or -1 in integers).
        max_fpr: largest false positive rate, in (0, 1].

    Returns:
        Float64 `[m]`, or a scalar tensor for `[n]`; NaN where a task has no positive or no negative.

    Raises:
        TypeError: an argument is not a tensor, or not of a supported dtype.
        ValueError: as for `roc_auc`.
    """
    check_range("(0, 1]", max_fpr=max_fpr)
    return tpr_at_fpr_of(rank(sort(scores, labels)), max_fpr)


def fpr_at_tpr(scores: Tensor, labels: Tensor, min_tpr: float = 0.8) -> Tensor:
    """Smallest false positive rate of each task at a true positive rate of at least some value.

    With P positives, it is the smallest `fp(p) / N` of a positive p with `tp(p) / P >= min_tpr`; the smallest
    `fpr[tpr >= min_tpr]` of `sklearn.metrics.roc_curve`. Lower is better.

    Args:
        scores: `[n]` or `[n, m]`; higher means more likely positive.
        labels: same shape; 1, 0 or missing (NaN, or -1 in integers).
        min_tpr: smallest true positive rate, in (0, 1].

    Returns:
        Float64 `[m]`, or a scalar tensor for `[n]`; NaN where a task has no positive or no negative.

    Raises:
        TypeError: an argument is not a tensor, or not of a supported dtype.
        ValueError: as for `roc_auc`, or `min_tpr` is outside (0, 1].
    """
    check_range("(0, 1]", min_tpr=min_tpr)
    return fpr_at_tpr_of(rank(sort(scores, labels)), min_tpr)


def tpr_at_fpr_of(ranks: TaskRanks, max_fpr: float) -> Tensor:
    """`tpr_at_fpr` of ranks."""
    found = ranks.leading(lambda at: (ranks.through[at] - ranks.tp[at]) / ranks.negatives <= max_fpr)
    return ranks.result(found / ranks.positives)


def fpr_at_tpr_of(ranks: TaskRanks, min_tpr: float) -> Tensor:
    """`fpr_at_tpr` of ranks."""
    early = ranks.leading(lambda at: ranks.tp[at] / ranks.positives < min_tpr)
    _, through, _, tp = ranks.counts(early)
    return ranks.result((through - tp) / ranks.negatives)
