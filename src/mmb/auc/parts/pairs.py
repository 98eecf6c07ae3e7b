"""Pairs of a positive and the negatives of its task, without ever forming rows x rows x tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from mmb.auc.parts.weighted_scores import WeightedScores

Surrogate = Literal["logistic", "squared_hinge"]


def pair_loss(difference: Tensor, surrogate: Surrogate, margin: float) -> tuple[Tensor, Tensor]:
    """Loss of pairs and its derivative by `d`, the score of the positive minus that of the negative.

    `"logistic"` is `log(1 + exp(c - d))`, `"squared_hinge"` is `max(c - d, 0)^2`.
    """
    short = margin - difference
    if surrogate == "logistic":
        return functional.softplus(short), -torch.sigmoid(short)
    short = short.clamp(min=0)
    return short * short, -2 * short


@dataclass(frozen=True)
class Pairs:
    """The positives of a batch, each against all rows of its task: cost and memory grow with `e` x rows."""

    rows: Tensor  # int64 [e]: where the positives are in the batch
    columns: Tensor  # int64 [e]
    weight: Tensor  # [e]; zero for padding

    @staticmethod
    def of(entries: WeightedScores, capacity: int | None = None) -> Pairs:
        """Find the positives: all, or the first `capacity` by row, padded to a number that is not data."""
        if capacity is None:
            rows, columns = entries.positive.nonzero(as_tuple=True)
            return Pairs(rows, columns, entries.positive[rows, columns])
        places = torch.nonzero_static(entries.positive, size=capacity, fill_value=-1)
        rows, columns = places.clamp(min=0).unbind(1)
        return Pairs(rows, columns, entries.positive[rows, columns] * (places[:, 0] >= 0))

    def difference(self, score: Tensor) -> Tensor:
        """Score of each positive minus the scores of all rows in its task, `[e, rows]`."""
        return score[self.rows, self.columns].unsqueeze(1) - self.beside(score)

    def beside(self, values: Tensor) -> Tensor:
        """The values `[rows, k]` in each positive's task, `[e, rows]`."""
        return values.T.index_select(0, self.columns)

    def by_task(self, values: Tensor, like: Tensor) -> Tensor:
        """Sum values `[e, rows]` over the positives of each task, `[rows, k]` as `like`."""
        return torch.zeros_like(like.T).index_add_(0, self.columns, values).T

    def to_scores(self, d_difference: Tensor, like: Tensor) -> Tensor:
        """Derivative by the scores `[rows, k]` from that by the differences `[e, rows]`."""
        d_score = -self.by_task(d_difference, like)
        return d_score.index_put((self.rows, self.columns), d_difference.sum(1), accumulate=True)
