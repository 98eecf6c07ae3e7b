"""Metrics that are one number for each task: ROC AUC, its partial forms, average precision."""

from torch import Tensor

from mmb._numbers import check_range
from mmb.metrics._ranking import TaskRanks, rank, sort


def roc_auc(scores: Tensor, labels: Tensor, max_fpr: float | None = None) -> Tensor:
    """Area under the ROC curve of each task, or the standardized partial area up to a false positive rate.

    With N negatives, `AUC = mean_p [1 - (fp_above(p) + fp(p)) / (2 N)]`: the chance that a positive
    outscores a negative, a tie counting half. With `max_fpr = c` it is McClish's standardized partial AUC,
    `(1 + (A - c^2/2) / (c - c^2/2)) / 2` where `A` is the area under the curve over `FPR <= c`: 1 for a
    perfect ranking, 0.5 for a random one. Both equal `sklearn.metrics.roc_auc_score`.

    Args:
        scores: `[n]` or `[n, m]`; higher means more likely positive.
        labels: same shape; 1, 0 or missing (NaN, or -1 in integers).
        max_fpr: largest false positive rate, in (0, 1]; None is the whole curve.

    Returns:
        Float64 `[m]`, or a scalar tensor for `[n]`; NaN where a task has no positive or no negative.

    Raises:
        TypeError: an argument is not a tensor, or not of a supported dtype.
        ValueError: shapes or devices differ, nothing is labeled, a label is not 0, 1 or missing, a labeled
            entry has a NaN or infinite score, or `max_fpr` is outside (0, 1].
    """
    if max_fpr is not None:
        check_range("(0, 1]", max_fpr=max_fpr)
    return roc_auc_of(rank(sort(scores, labels)), max_fpr)


def average_precision(scores: Tensor, labels: Tensor) -> Tensor:
    """Average precision of each task: `AP = mean_p tp(p) / (tp(p) + fp(p))`.

    This is the step-wise area under the precision-recall curve, equal to
    `sklearn.metrics.average_precision_score`.

    Args:
        scores: `[n]` or `[n, m]`; higher means more likely positive.
        labels: same shape; 1, 0 or missing (NaN, or -1 in integers).

    Returns:
        Float64 `[m]`, or a scalar tensor for `[n]`; NaN where a task has no positive or no negative
        (scikit-learn gives 0 or 1 there).

    Raises:
        TypeError: an argument is not a tensor, or not of a supported dtype.
        ValueError: as for `roc_auc`.
    """
    return average_precision_of(rank(sort(scores, labels)))


def two_way_pauc(
    scores: Tensor, labels: Tensor, *, max_fpr: float = 1.0, min_tpr: float = 0.0, min_fpr: float = 0.0
) -> Tensor:
    """Share of the rectangle `min_fpr <= FPR <= max_fpr`, `TPR >= min_tpr` that lies under the ROC curve.

        integral from min_fpr to max_fpr of max(TPR(u) - min_tpr, 0) du / ((max_fpr - min_fpr) (1 - min_tpr))

    Unless a limit cuts through a tie, this is the AUC of the hard pairs alone: the lowest-scored
    `1 - min_tpr` of the positives against the negatives between the two FPR limits (an entry that a limit
    cuts counts in part). A perfect ranking gives 1. It is not standardized: a random one gives 0.5 without
    limits and less, down to 0, with `max_fpr` or `min_tpr`; and with `min_tpr = 0` it is not
    `roc_auc(..., max_fpr)`. LibAUC's `pauc_roc_score` with `min_tpr > 0` is this with both numbers of
    entries rounded; the ISIC 2024 challenge's score is `0.2 * two_way_pauc(..., min_tpr=0.8)`.

    Args:
        scores: `[n]` or `[n, m]`; higher means more likely positive.
        labels: same shape; 1, 0 or missing (NaN, or -1 in integers).
        max_fpr: largest false positive rate, in (0, 1].
        min_tpr: smallest true positive rate, in [0, 1).
        min_fpr: smallest false positive rate, in [0, max_fpr).

    Returns:
        Float64 `[m]`, or a scalar tensor for `[n]`; NaN where a task has no positive or no negative.

    Raises:
        TypeError: an argument is not a tensor, or not of a supported dtype.
        ValueError: as for `roc_auc`, or `min_tpr` or `min_fpr` is out of range.
    """
    check_range("(0, 1]", max_fpr=max_fpr)
    check_range("[0, 1)", min_tpr=min_tpr)
    check_range(f"[0, {max_fpr})", "below max_fpr", min_fpr=min_fpr)
    return two_way_pauc_of(rank(sort(scores, labels)), max_fpr, min_tpr, min_fpr)


def two_way_pauc_of(ranks: TaskRanks, max_fpr: float, min_tpr: float, min_fpr: float = 0.0) -> Tensor:
    """`two_way_pauc` of ranks."""
    # The curve never falls: TPR >= min_tpr holds right of where it crosses min_tpr.
    high = ranks.negatives * max_fpr
    low = (ranks.negatives * min_fpr).maximum(_false_positives_at(ranks, min_tpr)).minimum(high)
    area = _area(ranks, high) - _area(ranks, low) - min_tpr * (high - low) / ranks.negatives
    return ranks.result(area / ((max_fpr - min_fpr) * (1 - min_tpr)))


def roc_auc_of(ranks: TaskRanks, max_fpr: float | None = None) -> Tensor:
    """`roc_auc` of ranks."""
    if max_fpr is None:
        twice = ranks.first_twice_fp(ranks.positives.long())
        return ranks.result(1 - twice / ranks.positives / (2 * ranks.negatives))
    area, random, perfect = _area(ranks, ranks.negatives * max_fpr), max_fpr**2 / 2, max_fpr
    return ranks.result((1 + (area - random) / (perfect - random)) / 2)


def average_precision_of(ranks: TaskRanks) -> Tensor:
    """`average_precision` of ranks."""
    return ranks.result(
        ranks.sum(lambda part: ranks.tp[part] / ranks.through[part].double()) / ranks.positives
    )


def _area(ranks: TaskRanks, limit: Tensor) -> Tensor:
    """Area under each ROC curve left of `limit` false positives `[m]`.

    Each of the P positives lifts the curve by 1/P, evenly between `fp_above` and `fp`. If its ramp ends
    before the limit, it adds `limit - (fp_above + fp) / 2`. The limit may cut the ramp of the next ones,
    which tie: each adds `(limit - fp_above)_+^2 / (2 (fp - fp_above))`.
    """
    whole = ranks.leading(lambda at: ranks.through[at] - ranks.tp[at] <= limit)
    above, through, tp_above, tp = ranks.counts(whole)
    fp_above, fp = above - tp_above, through - tp
    width = (fp - fp_above).clamp(min=1)  # 0, as is what it divides, where no negative ties
    cut = (tp - tp_above) * (limit - fp_above).clamp(min=0).square() / (2 * width)
    area = whole * limit - ranks.first_twice_fp(whole) / 2 + cut.where(whole < ranks.positives, 0)
    return area / ranks.positives / ranks.negatives


def _false_positives_at(ranks: TaskRanks, tpr: float) -> Tensor:
    """Number of false positives `[m]`, interpolated, at which each curve leaves the height `tpr`."""
    height = ranks.positives * tpr
    above, through, tp_above, tp = ranks.counts(ranks.leading(lambda at: ranks.tp[at] <= height))
    fp_above, fp = above - tp_above, through - tp
    return fp_above + (height - tp_above) / (tp - tp_above) * (fp - fp_above)
