"""Pairs of a positive and the rows of its task, without ever forming rows x rows x tasks."""

from __future__ import annotations

import math
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


def _largest_exponent(dtype: torch.dtype) -> float:
    """Of two: a logistic loss beyond it (87 in single precision) counts as that; its slope is one anyway."""
    return math.log2(torch.finfo(dtype).max) - 1


@dataclass(frozen=True)
class Pairs:
    """The positives of a batch, by task, each against all rows of its task.

    Values of entries come as `[k, rows]`, task by task; those of pairs are `[e, rows]`. What such a step
    costs is memory traffic, so tensors of pairs are few, and what depends on the entry alone is multiplied
    after the sum over positives.
    """

    places: Tensor  # int64 [e]: where the positives are in [k, rows], flat; ascending
    columns: Tensor  # int64 [e]: their tasks
    rows: Tensor  # int64 [e]: their rows of the batch
    weight: Tensor  # [e]; zero for padding
    known: Tensor  # bool [e]: false for what is no positive at all
    starts: Tensor  # int64 [k]: where the positives of each task begin

    @staticmethod
    def of(entries: WeightedScores, capacity: int | None = None) -> Pairs:
        """Find the positives: all, or `capacity`, padded with the first one to a number that is not data."""
        positive = entries.positive.T.flatten()
        every, num_rows = len(positive), len(entries.positive)
        if capacity is None:
            places = (positive > 0).nonzero().squeeze(1)
        else:
            places = torch.nonzero_static(positive, size=capacity, fill_value=every).squeeze(1)
        starts = torch.searchsorted(places, torch.arange(0, every, num_rows, device=places.device))
        padding = None if capacity is None else places == every
        if padding is not None:
            places = torch.where(padding, places[:1], places).clamp(max=every - 1)
        weight = positive.index_select(0, places)
        known = weight > 0
        weight = weight if padding is None else torch.where(padding, 0.0, weight)
        columns = places // num_rows
        return Pairs(places, columns, places - columns * num_rows, weight, known, starts)

    def of_task(self, values: Tensor) -> Tensor:
        """The values `[k]` or `[k, rows]` of each positive's task, `[e]` or `[e, rows]`: a new tensor."""
        return values.index_select(0, self.columns)

    def own(self, values: Tensor) -> Tensor:
        """The values `[k, rows]` at the positives themselves, `[e]`."""
        return values.flatten().index_select(0, self.places)

    def sums(self, weight: Tensor, *factors: Tensor) -> list[Tensor]:
        """Sums over the rows with weights `[k, rows]`: of each factor `[e, rows]` times those before it."""
        product = self.of_task(weight)
        return [product.mul_(factor).sum(1) for factor in factors]

    def by_entry(self, values: Tensor, weight: Tensor) -> Tensor:
        """Sum values `[e, rows]` with weights `[e]` over the positives of each task, `[k, rows]`."""
        every = torch.arange(len(values), device=values.device)
        return functional.embedding_bag(every, values, self.starts, mode="sum", per_sample_weights=weight)

    def losses(self, score: Tensor, margin: float, surrogate: Surrogate, *, itself: bool) -> PairLosses:
        """`pair_loss` of each positive with all rows of its task, of scores `[rows, k]`.

        If not `itself`, the loss of a positive with itself is zero. That takes time, and is not needed where
        positives have no weight as rivals.
        """
        hinge = surrogate == "squared_hinge"
        # the slope of the squared hinge is twice what is lacking; exp2 is thrice as fast as exp on a CPU
        unit = 2.0 if hinge else 1 / math.log(2)
        score = (unit * score).T.contiguous()
        short = self.of_task(score).sub_((self.own(score) - unit * margin).unsqueeze(1))
        if not itself:
            short.scatter_(1, self.rows.unsqueeze(1), -torch.inf)
        if hinge:
            return PairLosses(self, None, short.clamp_(min=0))
        odds = short.clamp_(max=_largest_exponent(short.dtype)).exp2_()
        loss = odds.log1p()
        return PairLosses(self, loss, odds.reciprocal_().add_(1).reciprocal_())

    def add_own(self, values: Tensor, own: Tensor) -> Tensor:
        """Add numbers `[e]` at the positives to values `[k, rows]`; the result is `[rows, k]`."""
        values.view(-1).index_add_(0, self.places, own)
        return values.T.contiguous()


@dataclass(frozen=True)
class PairLosses:
    """Losses of pairs and their slopes by what the positive lacks, `[e, rows]`: only sums are needed."""

    pairs: Pairs
    loss: Tensor | None  # None of the squared hinge: it is a quarter of the square of its slope
    slope: Tensor

    def of_positives(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and slope of each positive, summed over the rows with weights `[k, rows]`: `[e]` each."""
        if self.loss is None:
            slope, square = self.pairs.sums(weight, self.slope, self.slope)
            return 0.25 * square, slope
        return self.pairs.sums(weight, self.loss)[0], self.slope_of_positives(weight)

    def slope_of_positives(self, weight: Tensor) -> Tensor:
        """The second of `of_positives` alone."""
        return self.pairs.sums(weight, self.slope)[0]

    def of_entries(self, weight: Tensor) -> Tensor:
        """Loss of each entry, summed over the positives of its task with weights `[e]`: `[k, rows]`."""
        loss = 0.25 * self.slope * self.slope if self.loss is None else self.loss
        return self.pairs.by_entry(loss, weight)

    def slope_of_entries(self, weight: Tensor) -> Tensor:
        """The derivative of `of_entries` by the scores of the entries."""
        return self.pairs.by_entry(self.slope, weight)


@dataclass(frozen=True)
class PairsAbove:
    r"""Squared hinges above a level of each positive, $(\max(s, 0)^2 - l_i)_+$ with what it lacks, `s`.

    They are positive where `s` exceeds the root `r` of the level, by `y`: there they are $y^2 + 2 r y$.
    """

    pairs: Pairs
    over: Tensor  # y, [e, rows]; zero elsewhere
    above: Tensor  # one where the pair is above, [e, rows]; zero elsewhere
    root: Tensor  # r, [e]; zero for a level below zero, above which all pairs are
    mass: Tensor  # weight of the pairs above the level, [e]
    excess: Tensor  # sum of the excess, [e]
    d_own: Tensor  # its derivative by what the positive lacks, [e]

    @staticmethod
    def of(pairs: Pairs, score: Tensor, margin: float, level: Tensor, weight: Tensor) -> PairsAbove:
        """Sums over the rows, of scores and weights `[k, rows]` and levels `[e]`."""
        root = level.clamp(min=0).sqrt()
        over = pairs.of_task(score).sub_((pairs.own(score) - margin + root).unsqueeze(1)).clamp_(min=0)
        above = over.sign()
        mass, first, second = pairs.sums(weight, above, over, over)
        below_zero = level.clamp(max=0)
        all_mass = pairs.of_task(weight.sum(1))
        return PairsAbove(
            pairs,
            over,
            above,
            root,
            mass=torch.where(level < 0, all_mass, mass),
            excess=second + 2 * root * first - below_zero * all_mass,
            d_own=2 * (first + root * mass),
        )

    def d_score(self, share: Tensor, weight: Tensor) -> Tensor:
        """Derivative by the scores `[rows, k]` of the excess, summed with the positives' shares `[e]`."""
        by_entry = self.pairs.by_entry(self.over, 2 * share)
        by_entry = by_entry + self.pairs.by_entry(self.above, 2 * share * self.root)
        return self.pairs.add_own(weight * by_entry, -share * self.d_own)
