"""Operating points with a promise: thresholds whose rate on new rows is bounded with a stated confidence."""

from typing import NamedTuple

import torch
from torch import Tensor

from mmb._numbers import check_range
from mmb.metrics._binomial import clopper_pearson, fewest_rows, most_allowed
from mmb.metrics._checks import check_labels, check_pair, check_scores


class OperatingPoints(NamedTuple):
    """For each task a threshold, and the rates of the rows it was placed by, with their intervals.

    All but `fewest_rows` are float64 `[m]`, or scalars for one task. Where a task has too few rows for the
    promise, everything is NaN.
    """

    threshold: Tensor
    """Call rows positive whose score is larger than this."""
    fpr: Tensor
    """Share of the negatives that it calls positive."""
    fpr_low: Tensor
    """Lower limit of the false positive rate on new rows: of an exact two-sided interval."""
    fpr_high: Tensor
    """Upper limit of it."""
    tpr: Tensor
    """Share of the positives that it calls positive; NaN without positives."""
    tpr_low: Tensor
    """Lower limit of the true positive rate on new rows."""
    tpr_high: Tensor
    """Upper limit of it."""
    fewest_rows: int
    """How many rows of the bounded class (negatives for `max_fpr`) a task needs for this promise."""


def operating_points(
    scores: Tensor,
    labels: Tensor,
    *,
    max_fpr: float | None = None,
    min_tpr: float | None = None,
    confidence: float = 0.95,
) -> OperatingPoints:
    r"""Thresholds that keep a rate on new rows, with a stated confidence, task by task.

    With `max_fpr` $= \alpha$, the threshold of a task with $n$ negatives is the $(k + 1)$-th largest of their
    scores, where $k$ is the largest number with

    $$\mathrm{P}(\mathrm{Bin}(n, \alpha) \le k) \le 1 - \text{confidence}.$$

    The false positive rate on new rows is then at most $\alpha$ with a probability of at least `confidence`
    over the draw of these rows, whatever the distribution of scores, with ties or without. That is exact, and
    needs two things: the rows here and the new ones come from the same distribution, and the model has not
    seen these rows. With `min_tpr`, likewise, the true positive rate is at least that, by the scores of the
    positives.

    Args:
        scores: `[n]` or `[n, m]`, of rows that the model was not trained on; higher means more likely
            positive.
        labels: Same shape; 1, 0 or missing (NaN, or -1 in integers).
        max_fpr: Largest false positive rate, in (0, 1). Give this or `min_tpr`.
        min_tpr: Smallest true positive rate, in (0, 1).
        confidence: Probability with which the rate is kept, for each task on its own, in (0, 1).

    Returns:
        The thresholds, with the rates of these rows and their Clopper-Pearson intervals.

    Raises:
        TypeError: If an argument is not a tensor, or not of a supported dtype.
        ValueError: If not exactly one rate is given, a number is out of its range, or scores and labels are
            as `roc_auc` refuses them.
    """
    if (max_fpr is None) == (min_tpr is None):
        raise ValueError(f"give max_fpr or min_tpr, and not both; got {max_fpr} and {min_tpr}")
    check_range("(0, 1)", confidence=confidence)
    check_range("(0, 1)", **({"min_tpr": min_tpr} if max_fpr is None else {"max_fpr": max_fpr}))
    check_pair(scores, labels)
    one_task = scores.dim() == 1
    if one_task:
        scores, labels = scores.unsqueeze(1), labels.unsqueeze(1)
    positive, labeled = check_labels(labels)
    check_scores(scores, labeled)
    negative = ~positive if labeled is None else labeled & ~positive
    scores = scores.double() if not scores.is_floating_point() else scores
    if max_fpr is not None:
        threshold = _threshold(scores, negative, max_fpr, 1 - confidence)
    else:
        assert min_tpr is not None
        least = -_threshold(-scores, positive, 1 - min_tpr, 1 - confidence)  # at which rows are still called
        threshold = torch.nextafter(least, torch.full_like(least, -torch.inf))
    allowed = max_fpr if max_fpr is not None else 1 - (min_tpr or 0)
    called = scores > threshold
    rates: list[Tensor] = []
    for side in (negative, positive):
        count, number = (called & side).sum(0), side.sum(0)
        found = (count / number.double(), *clopper_pearson(count, number, confidence))
        rates += [value.where(~threshold.isnan(), torch.nan) for value in found]
    shown = [value.squeeze(0) if one_task else value for value in (threshold.double(), *rates)]
    return OperatingPoints._make([*shown, fewest_rows(allowed, 1 - confidence)])


def _threshold(scores: Tensor, side: Tensor, rate: float, error: float) -> Tensor:
    """A score of each task's rows of one side, such that few of new ones are above; NaN if too few rows."""
    number = side.sum(0)
    above = most_allowed(number, rate, error)
    ordered = torch.where(side, scores, -torch.inf).sort(0, descending=True).values
    found = ordered.gather(0, above.clamp(min=0).unsqueeze(0)).squeeze(0)
    return found.where(above >= 0, torch.nan)
