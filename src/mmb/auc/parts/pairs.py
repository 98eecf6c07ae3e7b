"""Pairs of a positive and the negatives of its task, without ever forming rows x rows x tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from mmb.auc.parts.weighted_scores import WeightedScores

Surrogate = Literal["logistic", "squared_hinge"]


def pair_loss(short: Tensor, surrogate: Surrogate) -> tuple[Tensor, Tensor]:
    """Loss of pairs and its derivative by `short`, what the positive lacks to the margin: `c - h_i + h_j`.

    `"logistic"` is `log(1 + exp(short))`, `"squared_hinge"` is `max(short, 0)^2`.
    """
    if surrogate == "logistic":
        return functional.softplus(short), torch.sigmoid(short)
    short = short.clamp(min=0)
    return short * short, 2 * short


@dataclass(frozen=True)
class Pairs:
    """The positives of a batch, by task, each against all rows of its task.

    Cost and memory grow with `e` x rows. Values per row come as `[k, rows]`, task by task.
    """

    rows: Tensor  # int64 [e]: where the positives are in the batch
    columns: Tensor  # int64 [e]: their tasks, ascending
    weight: Tensor  # [e]; zero for padding
    known: Tensor  # bool [e]: false for what is no positive at all
    starts: Tensor  # int64 [k]: where the positives of each task begin

    @staticmethod
    def of(entries: WeightedScores, capacity: int | None = None) -> Pairs:
        """Find the positives: all, or `capacity`, padded with the first one to a number that is not data."""
        positive = entries.positive.T.contiguous()
        counts = positive.sign().sum(1).long()
        starts = counts.cumsum(0) - counts
        if capacity is None:
            columns, rows = positive.nonzero(as_tuple=True)
            weight = positive[columns, rows]
            return Pairs(rows, columns, weight, weight > 0, starts)
        places = torch.nonzero_static(positive, size=capacity, fill_value=-1)
        padding = places[:, :1] < 0
        columns, rows = torch.where(padding, places[:1], places).clamp(min=0).unbind(1)
        weight = positive[columns, rows]
        known = weight > 0
        weight = torch.where(padding.squeeze(1), 0.0, weight)
        return Pairs(rows, columns, weight, known, starts.clamp(max=capacity))

    def own(self, values: Tensor) -> Tensor:
        """The values `[k, rows]` at the positives, `[e]`."""
        return values[self.columns, self.rows]

    def beside(self, values: Tensor) -> Tensor:
        """The values `[k, rows]` in each positive's task, `[e, rows]`: a new tensor."""
        return values.index_select(0, self.columns)

    def losses(self, score: Tensor, margin: float, surrogate: Surrogate) -> tuple[Tensor, Tensor]:
        """`pair_loss` of each positive and all rows of its task, `[e, rows]` each, of scores `[rows, k]`.

        What a positive lacks to itself is `c`, however large the score. The two tensors are the only ones of
        this size that are made: memory is what such a step costs.
        """
        score = score.T.contiguous()
        short = self.beside(score).sub_((self.own(score) - margin).unsqueeze(1))
        short.scatter_(1, self.rows.unsqueeze(1), margin)
        if surrogate == "logistic":
            return functional.softplus(short), short.sigmoid_()
        short.clamp_(min=0)
        return short * short, short.mul_(2)

    def by_task(self, values: Tensor, weight: Tensor) -> Tensor:
        """Sum values `[e, rows]` with weights `[e]` over the positives of each task, `[k, rows]`."""
        every = torch.arange(len(values), device=values.device)
        return functional.embedding_bag(every, values, self.starts, mode="sum", per_sample_weights=weight)

    def to_scores(self, d_short: Tensor, weight: Tensor) -> Tensor:
        """Derivative by the scores `[rows, k]` from that by `short`, `[e, rows]`, with weights `[e]`."""
        d_score = self.by_task(d_short, weight)
        place = self.columns, self.rows
        return d_score.index_put_(place, -weight * d_short.sum(1), accumulate=True).T.contiguous()
