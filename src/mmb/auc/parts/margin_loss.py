"""The min-max margin loss: the pairwise square loss without pairs, and its derivatives."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class MarginTerms(NamedTuple):
    """The margin loss of each task and HALF its derivatives (the factor two is cheapest at the end)."""

    value: Tensor  # L_k, [k]
    shortfall: Tensor  # c + E-[h] - E+[h], [k]: half the derivative by the dual, plus the dual
    d_score: Tensor  # [rows, k]
    d_mean_positive: Tensor  # [k]
    d_mean_negative: Tensor  # [k]


def margin_terms(
    score: Tensor,
    positive: Tensor,
    negative: Tensor,
    mean_positive: Tensor,
    mean_negative: Tensor,
    dual: Tensor,
    margin: float,
) -> MarginTerms:
    r"""Value and derivatives of the margin loss of each task, without task weights.

    $$
    L = E_+[(h-a)^2] + E_-[(h-b)^2] + 2 \alpha\,(c + E_-[h] - E_+[h]) - \alpha^2
    $$

    where $E_\pm$ are weighted sums. In the dual term the class means are estimated as
    $a + E_+[h-a]$ and $b + E_-[h-b]$, with $a, b$ held fixed there: equal to
    $E_\pm[h]$ whenever the weights sum to one, of less variance when they do so only in expectation
    (dense batches), and the tracked mean if a batch lacks the class.
    """
    from_positive, from_negative = score - mean_positive, score - mean_negative
    pull_positive, pull_negative = positive * from_positive, negative * from_negative
    sum_positive, sum_negative = pull_positive.sum(0), pull_negative.sum(0)
    shortfall = margin + (mean_negative + sum_negative) - (mean_positive + sum_positive)
    variance = torch.addcmul(pull_positive * from_positive, pull_negative, from_negative).sum(0)
    return MarginTerms(
        value=variance + dual * (2 * shortfall - dual),
        shortfall=shortfall,
        d_score=torch.addcmul(pull_positive + pull_negative, dual, negative - positive),
        d_mean_positive=-sum_positive,
        d_mean_negative=-sum_negative,
    )
