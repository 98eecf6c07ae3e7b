"""How good probabilities are: their squared and logarithmic error, and whether they are calibrated.

These take probabilities, or logits with `from_logits=True`. Lower is better.
"""

import torch
from torch import Tensor
from torch.nn import functional

from mmb._numbers import check_whole
from mmb.metrics._ranking import Entries, flatten, leading, sort, sums


def brier(probabilities: Tensor, labels: Tensor, *, from_logits: bool = False) -> Tensor:
    """Brier score of each task: the mean of `(probability - label)^2`.

    Equal to `sklearn.metrics.brier_score_loss`.

    Args:
        probabilities: `[n]` or `[n, m]`; of the positive class, in [0, 1].
        labels: same shape; 1, 0 or missing (NaN, or -1 in integers).
        from_logits: whether `probabilities` are logits, whose sigmoid is taken.

    Returns:
        Float64 `[m]`, or a scalar tensor for `[n]`; NaN where a task has no positive or no negative.

    Raises:
        TypeError: an argument is not a tensor, or not of a supported dtype.
        ValueError: as for `roc_auc`, or a labeled entry has a probability outside of [0, 1].
    """
    return brier_of(_check_probabilities(flatten(probabilities, labels, from_logits)))


def log_loss(probabilities: Tensor, labels: Tensor, *, from_logits: bool = False) -> Tensor:
    """Mean of `-log(probability of the label)` of each task, in nats.

    Equal to `sklearn.metrics.log_loss`: probabilities are kept the machine epsilon of their dtype away from 0
    and 1. Logits need no such limit and have none.

    Args:
        probabilities: `[n]` or `[n, m]`; of the positive class, in [0, 1].
        labels: same shape; 1, 0 or missing (NaN, or -1 in integers).
        from_logits: whether `probabilities` are logits.

    Returns:
        Float64 `[m]`, or a scalar tensor for `[n]`; NaN where a task has no positive or no negative.

    Raises:
        TypeError: an argument is not a tensor, or not of a supported dtype.
        ValueError: as for `roc_auc`, or a labeled entry has a probability outside of [0, 1].
    """
    return log_loss_of(_check_probabilities(flatten(probabilities, labels, from_logits)))


def calibration_error(
    probabilities: Tensor, labels: Tensor, bins: int = 15, *, from_logits: bool = False
) -> Tensor:
    """Expected calibration error of each task: how far probabilities are from the rates of positives.

    Entries are put in bins of equal width by their probability. It is the mean over the bins, weighted by
    their entries, of `|mean probability - share of positives|`. Equal to torchmetrics'
    `binary_calibration_error(..., norm="l1")`, except that a probability of exactly 1 belongs to the last bin
    here, and has a bin for itself there.

    Args:
        probabilities: `[n]` or `[n, m]`; of the positive class, in [0, 1].
        labels: same shape; 1, 0 or missing (NaN, or -1 in integers).
        bins: number of bins, at least 1; they include their lower ends.
        from_logits: whether `probabilities` are logits, whose sigmoid is taken.

    Returns:
        Float64 `[m]`, or a scalar tensor for `[n]`; NaN where a task has no positive or no negative.

    Raises:
        TypeError: an argument is not a tensor, or not of a supported dtype.
        ValueError: as for `roc_auc`, a labeled entry has a probability outside of [0, 1], or `bins` is not
            a whole number of at least 1.
    """
    check_whole("bins", bins, 1)
    entries = sort(probabilities, labels).entries(from_logits)
    return calibration_error_of(_check_probabilities(entries), bins)


def brier_of(entries: Entries) -> Tensor:
    """`brier` of entries."""
    return entries.result(entries.mean(lambda part: entries.excess(part).square_()))


def log_loss_of(entries: Entries) -> Tensor:
    """`log_loss` of entries."""
    least = torch.finfo(entries.scores.dtype if entries.scores.is_floating_point() else torch.float64).eps

    def gain(part: slice) -> Tensor:
        values, positive = entries.scores[part].double(), entries.positive[part].double()
        if entries.logits:
            return functional.logsigmoid(positive.mul_(2).sub_(1).mul_(values))
        return positive.sub_(1).add_(values).abs_().clamp_(least, 1 - least).log_()

    return entries.result(-entries.mean(gain))


def calibration_error_of(entries: Entries, bins: int) -> Tensor:
    """`calibration_error` of entries in falling order of their scores: a bin is one stretch of a task."""
    counts = entries.labeled[:, None]
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64, device=counts.device)[1:-1].flip(0)
    ends = leading(
        lambda at: entries.probability(at) >= edges, counts.expand(-1, bins - 1), len(entries.scores)
    )
    ends = torch.cat([torch.zeros_like(counts), ends, counts], 1)
    gaps = sums(entries.excess, ends.diff(dim=1))
    return entries.result(gaps.abs().sum(1) / entries.labeled)


def _check_probabilities(entries: Entries) -> Entries:
    if not entries.logits:
        low, high = entries.scores.aminmax()
        if low < 0 or high > 1:
            wrong = low if low < 0 else high
            raise ValueError(
                f"probabilities: expected numbers in [0, 1], got {wrong.item()}; "
                "if they are logits, set from_logits=True"
            )
    return entries
