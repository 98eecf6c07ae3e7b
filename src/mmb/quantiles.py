"""Thresholds at false positive rates: quantiles of the negatives' scores."""

from collections.abc import Sequence

import torch
from torch import Tensor


def negative_quantiles(scores: Tensor, mass: Tensor, rates: Sequence[float]) -> Tensor:
    """The lowest score of a negative with at most the share `rate` of negatives above it, `[rates, m]`.

    With n negatives of equal weight that is the (K+1)-th largest score, `K = floor(rate * n)`, or the least
    at a rate of one. `mass` is the weight of each of the `[n, m]` scores as a negative, or whether it is one:
    zero for positives and gaps, whose scores may be anything. Tasks without negatives get NaN.
    """
    negative = mass > 0
    ordered, order = torch.where(negative, scores, -torch.inf).sort(0, descending=True)
    passed = mass.double().gather(0, order).cumsum(0).T.contiguous()  # [m, n]
    allowed = passed.new_tensor(rates) * mass.double().sum(0).unsqueeze(1)
    place = torch.searchsorted(passed, allowed * (1 + 1e-9), right=True)  # 0.29 of 100 is 29, not 28.9999
    last = negative.sum(0).unsqueeze(1) - 1
    ordered = torch.cat([ordered, ordered.new_full((1, ordered.shape[1]), torch.nan)])  # if there are no rows
    return torch.where(last < 0, torch.nan, ordered.T.gather(1, place.minimum(last).clamp(min=0))).T
