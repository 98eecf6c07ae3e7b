"""Pairs of a positive and the rows of its task, without ever forming rows x rows x tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

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

    Values of entries are `[rows, k]` or, next to pairs, `[k, rows]`, task by task; those of pairs are
    `[e, rows]`. What such a step costs is memory traffic, so there are few tensors of pairs, no sum stores
    its products, and what depends on the entry alone is multiplied after the sum over positives. (Sorting the
    rows of every task and taking sums up to each positive takes as long as thirty passes over the pairs of a
    batch that is a tenth positive.)
    """

    columns: Tensor  # int64 [e]: the tasks of the positives
    rows: Tensor  # int64 [e]: their rows of the batch
    places: Tensor  # int64 [e]: where they are in [rows, k], flat
    weight: Tensor  # [e]; zero for padding
    known: Tensor  # bool [e]: false for padding, which is not a positive
    starts: Tensor  # int64 [k]: where the positives of each task begin
    every: Tensor  # int64 [e]: 0, 1, 2, ...
    entries: WeightedScores

    @staticmethod
    def of(entries: WeightedScores, capacity: int | None = None) -> Pairs:
        """Find the positives: all, or `capacity`, padded with the first one to a number that is not data."""
        num_rows, num_tasks = entries.positive.shape
        there = entries.positive.bool().T
        if capacity is None:
            columns, rows = there.nonzero().T.contiguous()
        else:
            columns, rows = torch.nonzero_static(there, size=capacity, fill_value=num_tasks).T.contiguous()
        starts = torch.searchsorted(columns, torch.arange(num_tasks, device=columns.device))
        padding = None if capacity is None else columns == num_tasks
        if padding is not None:
            columns = torch.where(padding, columns[:1], columns).clamp(max=num_tasks - 1)
            rows = torch.where(padding, rows[:1], rows).clamp(max=num_rows - 1)
        places = torch.add(columns, rows, alpha=num_tasks)
        weight = entries.positive.flatten().index_select(0, places)
        known = weight.bool()
        weight = weight if padding is None else torch.where(padding, 0.0, weight)
        every = torch.arange(len(places), device=places.device)
        return Pairs(columns, rows, places, weight, known, starts, every, entries)

    def of_task(self, values: Tensor) -> Tensor:
        """The values `[k]` or `[k, rows]` of each positive's task, `[e]` or `[e, rows]`: a new tensor."""
        return values.index_select(0, self.columns)

    def own(self, values: Tensor) -> Tensor:
        """The values `[rows, k]` at the positives themselves, `[e]`."""
        return values.flatten().index_select(0, self.places)

    def sums(self, weight: Tensor, values: Tensor) -> Tensor:
        """Sum values `[e, rows]` over the rows with weights `[k, rows]`: `[e]`. Two kinds give `[2, e]`."""
        if weight.dim() == 3:
            return torch.stack([self.sums(one, values) for one in weight])
        if values.device.type != "cpu":  # a compiler makes one pass of it
            return (values * self.of_task(weight)).sum(1)
        # the derivative of `by_entry` by its weights is this sum, in one pass and without its products
        sums = torch.ops.aten._embedding_bag_per_sample_weights_backward
        found: Tensor = sums(values, weight, self.columns, self.starts, self.every, 0)
        return found

    def by_entry(self, values: Tensor, weight: Tensor) -> Tensor:
        """Sum values `[e, rows]` with weights `[e]` (or `[2, e]`) over each task's positives: `[k, rows]`."""
        if weight.dim() == 2:
            return torch.stack([self.by_entry(values, one) for one in weight])
        return functional.embedding_bag(
            self.every, values, self.starts, mode="sum", per_sample_weights=weight
        )

    def losses(
        self, score: Tensor, margin: float, surrogate: Surrogate, *, itself: bool, spread: float = math.inf
    ) -> PairLosses:
        """`pair_loss` of each positive with all rows of its task, of scores `[rows, k]`.

        If not `itself`, the loss of a positive with itself is zero. That takes time, and is not needed where
        positives have no weight as rivals. If `spread` is finite, scores are between zero and `spread`.
        """
        hinge = surrogate == "squared_hinge"
        if hinge and spread <= margin:
            return WholeSquares(self, score, self.own(score) - margin, own=0.0 if itself else margin)
        # exp2 is thrice as fast as exp on a CPU
        score, margin = (score, margin) if hinge else (score / math.log(2), margin / math.log(2))
        lead, score = self.own(score) - margin, score.T.contiguous()
        small = self._small_exponents(score, margin) if itself and not hinge else None
        if small is not None:  # odds are products: a power for each entry instead of one for each pair
            own, rival = (-lead).exp2(), small.exp2()
            odds = self.of_task(rival).mul_(own.unsqueeze(1))
            return LogisticLosses(self, odds.log1p(), odds.add_(1).reciprocal_(), own, rival)
        short = self.of_task(score).sub_(lead.unsqueeze(1))
        if not itself:
            short.scatter_(1, self.rows.unsqueeze(1), -torch.inf)
        if hinge:
            return SquaredHinges(self, score, lead, short.clamp_(min=0))
        odds = short.clamp_(max=_largest_exponent(short.dtype)).exp2_()
        return LogisticLosses(self, odds.log1p(), odds.reciprocal_().add_(1).reciprocal_())

    def _small_exponents(self, score: Tensor, margin: float) -> Tensor | None:
        """Scores `[k, rows]` if powers of any two, and their product, are normal numbers; else None.

        Scores without weight are clipped, and do not matter. On a GPU this is not checked.
        """
        if score.device.type != "cpu" or torch.compiler.is_compiling():
            return None
        limit = _largest_exponent(score.dtype) / 2 - margin
        small = score.clamp(-limit, limit)
        if torch.equal(small, score):
            return small
        labeled = (self.entries.positive + self.entries.negative).T > 0
        return None if bool(((small != score) & labeled).any()) else small

    def less_own(self, values: Tensor, own: Tensor) -> Tensor:
        """Values `[rows, k]`, which are lost, less numbers `[e]` at the positives."""
        return values.flatten().index_add_(0, self.places, own, alpha=-1).view_as(values)


class PairLosses(Protocol):
    """Losses of pairs and their slopes by what the positive lacks: only sums are needed.

    Slopes may count the pair of a positive with itself even where losses do not: in `less_own` that cancels.
    """

    def of_positives(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and slope of each positive, summed over the rows with weights `[rows, k]`: `[e]` each.

        Weights `[2, rows, k]` give two of each, `[2, e]`.
        """

    def of_entries(self, weight: Tensor) -> Tensor:
        """Loss of each entry, summed over the positives of its task with weights `[e]`: `[rows, k]`."""

    def slope_of_entries(self, weight: Tensor) -> Tensor:
        """The derivative of `of_entries` by the scores of the entries. Weights may be `[2, e]`."""


@dataclass(frozen=True)
class LogisticLosses(PairLosses):
    """The logistic loss; its slope is `part`, times a factor of the positive, times one of the rival."""

    pairs: Pairs
    loss: Tensor  # [e, rows]
    part: Tensor  # [e, rows]
    own: Tensor | None = None  # [e]; None is one
    rival: Tensor | None = None  # [k, rows]

    def of_positives(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Two sums."""
        weight = weight.mT.contiguous()
        slope = self.pairs.sums(_times(weight, self.rival), self.part)
        return self.pairs.sums(weight, self.loss), _times(slope, self.own)

    def of_entries(self, weight: Tensor) -> Tensor:
        """One sum."""
        return self.pairs.by_entry(self.loss, weight).mT.contiguous()

    def slope_of_entries(self, weight: Tensor) -> Tensor:
        """One sum."""
        slope = self.pairs.by_entry(self.part, _times(weight, self.own))
        return _times(slope, self.rival).mT.contiguous()


@dataclass(frozen=True)
class SquaredHinges(PairLosses):
    """The squared hinge of `short`, which is zero or `score - lead`; the squares are never stored."""

    pairs: Pairs
    score: Tensor  # [k, rows]
    lead: Tensor  # [e]
    short: Tensor  # [e, rows]

    def of_positives(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of `short`, and that of `short * (score - lead)`."""
        weight = weight.mT.contiguous()
        first = self.pairs.sums(weight, self.short)
        return self.pairs.sums(weight * self.score, self.short) - self.lead * first, 2 * first

    def of_entries(self, weight: Tensor) -> Tensor:
        """The sum of `short * (score - lead)`."""
        first = self.pairs.by_entry(self.short, weight)
        return (self.score * first - self.pairs.by_entry(self.short, weight * self.lead)).mT.contiguous()

    def slope_of_entries(self, weight: Tensor) -> Tensor:
        """Twice the sum of `short`."""
        return self.pairs.by_entry(self.short, 2 * weight).mT.contiguous()


@dataclass(frozen=True)
class WholeSquares(PairLosses):
    """Squared hinges if all are above zero: their sums follow from moments, without pairs.

    No score is below zero, and no lead above it. With the sums `W` of weights, `S` of weighted scores and `T`
    of weighted squares, the squares of `score - lead` sum to `T - 2 lead S + lead^2 W`: nothing cancels.
    """

    pairs: Pairs
    score: Tensor  # [rows, k]
    lead: Tensor  # [e]
    own: float  # what a positive lacks to itself, the margin; zero if that counts like all others

    def of_positives(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """By moments of the scores of each task."""
        at_score = weight * self.score
        sums = weight.sum(-2), at_score.sum(-2), at_score.mul_(self.score).sum(-2)
        mass, first, second = (one.index_select(-1, self.pairs.columns) for one in sums)
        short = torch.addcmul(first, mass, self.lead, value=-1)
        loss = torch.addcmul(second, self.lead, first + short, value=-1)
        if self.own > 0:
            own = weight.flatten(-2).index_select(-1, self.pairs.places)
            loss.sub_(own, alpha=self.own**2).clamp_(min=0)
        return loss, short.mul_(2)

    def of_entries(self, weight: Tensor) -> Tensor:
        """By moments of the leads of each task."""
        leads = weight * self.lead
        mass, first, second = (self._sum(one) for one in (weight, leads, leads * self.lead))
        loss = torch.addcmul(second, self.score, torch.addcmul(-2 * first, mass, self.score))
        return self.pairs.less_own(loss, self.own**2 * weight).clamp_(min=0)

    def slope_of_entries(self, weight: Tensor) -> Tensor:
        """Linear in the score."""
        mass, first = self._sum(torch.stack([weight, weight * self.lead])).unsqueeze(-2)
        return torch.addcmul(-2 * first, mass, self.score, value=2)

    def _sum(self, values: Tensor) -> Tensor:
        """Values `[..., e]` summed over the positives of each task, `[..., k]`."""
        found = values.new_zeros(*values.shape[:-1], self.score.shape[1])
        return found.index_add_(-1, self.pairs.columns, values)


def _times(values: Tensor, factor: Tensor | None) -> Tensor:
    return values if factor is None else values * factor


@dataclass(frozen=True)
class PairsAbove:
    r"""Squared hinges above a level of each positive, $(\max(s, 0)^2 - l_i)_+$ with what it lacks, `s`."""

    pairs: Pairs
    weight: Tensor  # [k, rows]
    level: Tensor  # [e]
    root: Tensor  # of the level, [e]
    over: Tensor  # how far `s` is above the root, or zero, [e, rows]
    first: Tensor  # its sum, [e]
    all_mass: Tensor  # weight of all pairs, [e]
    excess: Tensor  # sum of the excess, [e]

    @staticmethod
    def of(pairs: Pairs, score: Tensor, margin: float, level: Tensor, weight: Tensor) -> PairsAbove:
        """Sums over the rows, of scores and weights `[rows, k]` and levels `[e]`."""
        lead, score, weight = pairs.own(score) - margin, score.T.contiguous(), weight.T.contiguous()
        root = level.clamp(min=0).sqrt()  # above a level below zero are all pairs
        over = pairs.of_task(score).sub_((lead + root).unsqueeze(1)).clamp_(min=0)
        first, all_mass = pairs.sums(weight, over), pairs.of_task(weight.sum(1))
        excess = pairs.sums(weight * score, over) - (lead - root) * first - level.clamp(max=0) * all_mass
        return PairsAbove(pairs, weight, level, root, over, first, all_mass, excess)

    def lower(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """Weight of the pairs above, `[e]`, and the derivative of the excess by the scores, `[rows, k]`.

        The excess is summed with the positives' shares, `[e]`. To be called once: it overwrites `over`.
        """
        slope = self.pairs.by_entry(self.over, share)
        above = self.over.sign_()
        mass = self.pairs.sums(self.weight, above)
        slope = (slope + self.pairs.by_entry(above, share * self.root)).mul_(2 * self.weight)
        d_score = self.pairs.less_own(slope.T, 2 * share * (self.first + self.root * mass))
        return torch.where(self.level < 0, self.all_mass, mass), d_score
