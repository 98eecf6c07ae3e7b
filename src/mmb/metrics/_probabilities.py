"""How good probabilities are: their squared and logarithmic error, and whether they are calibrated.

These take probabilities, or logits with `from_logits=True`. Lower is better.
"""

import torch
from torch import Tensor
from torch.nn import functional

from mmb.metrics._ranking import Entries, flatten


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
    return brier_of(_entries(probabilities, labels, from_logits), from_logits)


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
    return log_loss_of(_entries(probabilities, labels, from_logits), from_logits)


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
        ValueError: as for `roc_auc`, a labeled entry has a probability outside of [0, 1], or `bins` is less
            than 1.
    """
    if bins < 1:
        raise ValueError(f"bins: expected at least 1, got {bins}")
    return calibration_error_of(_entries(probabilities, labels, from_logits), bins, from_logits)


def brier_of(entries: Entries, from_logits: bool = True) -> Tensor:
    """`brier` of entries."""
    return entries.result(
        entries.mean(_probability(entries, from_logits).sub_(entries.positive.view(torch.uint8)).square_())
    )


def log_loss_of(entries: Entries, from_logits: bool = True) -> Tensor:
    """`log_loss` of entries."""
    values = entries.scores.double()
    if from_logits:
        return entries.result(-entries.mean(functional.logsigmoid(values.where(entries.positive, -values))))
    least = torch.finfo(entries.scores.dtype if entries.scores.is_floating_point() else torch.float64).eps
    return entries.result(
        -entries.mean(values.where(entries.positive, 1 - values).clamp_(least, 1 - least).log_())
    )


def calibration_error_of(entries: Entries, bins: int, from_logits: bool = True) -> Tensor:
    """`calibration_error` of entries."""
    probability = _probability(entries, from_logits)
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64, device=probability.device)
    task = torch.repeat_interleave(entries.labeled)
    place = torch.bucketize(probability, edges[1:-1], right=True).add_(task, alpha=bins)
    # As integers, sums are the same in whatever order a device adds.
    excess = probability.sub_(entries.positive.view(torch.uint8)).mul_(_UNIT).round_().long()
    total = excess.new_zeros(len(entries.labeled) * bins).index_add_(0, place, excess)
    gaps = total.view(-1, bins).abs().sum(1).double() / _UNIT
    return entries.result(gaps / entries.labeled)


_UNIT = 2.0**36  # of fixed point numbers: room for 10^8 entries of a task, at an error below 10^-11


def _entries(probabilities: Tensor, labels: Tensor, from_logits: bool) -> Entries:
    entries = flatten(probabilities, labels)
    if not from_logits:
        low, high = entries.scores.aminmax()
        if low < 0 or high > 1:
            wrong = low if low < 0 else high
            raise ValueError(
                f"probabilities: expected numbers in [0, 1], got {wrong.item()}; "
                "if they are logits, set from_logits=True"
            )
    return entries


def _probability(entries: Entries, from_logits: bool) -> Tensor:
    """Probabilities in a new float64 tensor."""
    values = entries.scores.to(torch.float64, copy=True)
    return values.sigmoid_() if from_logits else values
