"""Thresholds at false positive rates: quantiles of the scores of negatives."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def negative_quantiles(scores: Tensor, mass: Tensor, rates: Sequence[float]) -> Tensor:
    r"""For each rate and task the lowest score of a negative with at most that share of negatives above it.

    Of $n_-$ negatives that weigh the same it is the (K+1)-th largest score, $K = \lfloor \rho\, n_- \rfloor$;
    at a rate of one, the least.

    Args:
        scores: `[n, m]`.
        mass: What each entry weighs as a negative of its task, `[n, m]`, or whether it is one; zero for
            positives and gaps, whose scores may be anything.
        rates: The rates $\rho$, in [0, 1].

    Returns:
        `[len(rates), m]`; NaN for tasks without negatives.
    """
    negative = mass > 0
    ordered, order = torch.where(negative, scores, -torch.inf).sort(0, descending=True)
    passed = mass.double().gather(0, order).cumsum(0).T.contiguous()  # [m, n]
    allowed = passed.new_tensor(rates) * mass.double().sum(0).unsqueeze(1)
    place = torch.searchsorted(passed, allowed * (1 + 1e-9), right=True)  # 0.29 of 100 is 29, not 28.9999
    last = negative.sum(0).unsqueeze(1) - 1
    ordered = torch.cat([ordered, ordered.new_full((1, ordered.shape[1]), torch.nan)])  # if there are no rows
    return torch.where(last < 0, torch.nan, ordered.T.gather(1, place.minimum(last).clamp(min=0))).T
