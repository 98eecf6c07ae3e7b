"""Pairs of a positive and the negatives of its task, without ever forming rows x rows x tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from mmb.auc.parts.weighted_scores import WeightedScores

Surrogate = Literal["logistic", "squared_hinge"]


def check_surrogate(surrogate: str) -> None:
    """Raise ValueError unless this is a known surrogate."""
    if surrogate not in get_args(Surrogate):
        raise ValueError(f"surrogate must be one of {', '.join(get_args(Surrogate))}; got {surrogate!r}")


def pair_loss(difference: Tensor, surrogate: Surrogate, margin: float) -> tuple[Tensor, Tensor]:
    """Loss of pairs and its derivative.

    Args:
        difference: `d`, score of the positive minus score of the negative.
        surrogate: `"logistic"`: `log(1 + exp(c - d))`; `"squared_hinge"`: `max(c - d, 0)^2`.
        margin: `c`.

    Returns:
        The loss and its derivative by `d`, both of the shape of `d`.
    """
    short = margin - difference
    if surrogate == "logistic":
        return functional.softplus(short), -torch.sigmoid(short)
    short = short.clamp(min=0)
    return short * short, -2 * short


@dataclass(frozen=True)
class Pairs:
    """The positive entries of a batch, each against all rows of its task: `e` x rows.

    Cost and memory grow with (number of positives) x rows. Everything but finding the positives has a fixed
    shape given their number.

    Attributes:
        rows: int64 `[e]`: where the positives are in the batch.
        columns: int64 `[e]`: likewise.
        weight: `[e]`: their weights; zero for padding.
    """

    rows: Tensor
    columns: Tensor
    weight: Tensor

    @staticmethod
    def of(entries: WeightedScores, capacity: int | None = None) -> Pairs:
        """Find the positives.

        Args:
            entries: The batch.
            capacity: Use at most this many positives, by row, padded to exactly this many: then no shape
                depends on the data and a GPU is not waited for. None: all of them.
        """
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
