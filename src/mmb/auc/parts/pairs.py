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

    Values of entries come as `[k, rows]`, task by task; those of pairs are `[e, rows]`. What such a step
    costs is memory traffic, so there are few tensors of pairs, no sum stores its products, and what depends
    on the entry alone is multiplied after the sum over positives. (Sorting the rows of every task and taking
    sums up to each positive takes as long as thirty passes over the pairs of a batch that is a tenth
    positive.)
    """

    places: Tensor  # int64 [e]: where the positives are in [k, rows], flat; ascending
    columns: Tensor  # int64 [e]: their tasks
    rows: Tensor  # int64 [e]: their rows of the batch
    weight: Tensor  # [e]; zero for padding
    known: Tensor  # bool [e]: false for padding, which is not a positive
    starts: Tensor  # int64 [k]: where the positives of each task begin
    every: Tensor  # int64 [e]: 0, 1, 2, ...
    entries: WeightedScores

    @staticmethod
    def of(entries: WeightedScores, capacity: int | None = None) -> Pairs:
        """Find the positives: all, or `capacity`, padded with the first one to a number that is not data."""
        num_rows, num_tasks = entries.positive.shape
        there, nothing = entries.positive.bool().T.flatten(), entries.positive.numel()
        if capacity is None:
            places = there.nonzero().squeeze(1)
        else:
            places = torch.nonzero_static(there, size=capacity, fill_value=nothing).squeeze(1)
        starts = torch.searchsorted(places, torch.arange(0, nothing, num_rows, device=places.device))
        padding = None if capacity is None else places == nothing
        if padding is not None:
            places = torch.where(padding, places[:1], places).clamp(max=nothing - 1)
        columns = places // num_rows
        rows = places - columns * num_rows
        weight = entries.positive.flatten().index_select(0, rows * num_tasks + columns)
        known = weight > 0
        weight = weight if padding is None else torch.where(padding, 0.0, weight)
        every = torch.arange(len(places), device=places.device)
        return Pairs(places, columns, rows, weight, known, starts, every, entries)

    def of_task(self, values: Tensor) -> Tensor:
        """The values `[k]` or `[k, rows]` of each positive's task, `[e]` or `[e, rows]`: a new tensor."""
        return values.index_select(0, self.columns)

    def own(self, values: Tensor) -> Tensor:
        """The values `[k, rows]` at the positives themselves, `[e]`."""
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
        positives have no weight as rivals. No two scores differ by more than `spread`.
        """
        hinge = surrogate == "squared_hinge"
        # exp2 is thrice as fast as exp on a CPU
        score = score.T.contiguous() if hinge else (score.T / math.log(2)).contiguous()
        margin = margin if hinge else margin / math.log(2)
        lead = self.own(score) - margin
        if hinge and spread <= margin:
            return WholeSquares(self, score, lead, own=0.0 if itself else margin)
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

    def add_own(self, values: Tensor, own: Tensor) -> Tensor:
        """Add numbers `[e]` at the positives to values `[k, rows]`; the result is `[rows, k]`."""
        values.view(-1).index_add_(0, self.places, own)
        return values.T.contiguous()


class PairLosses(Protocol):
    """Losses of pairs and their slopes by what the positive lacks: only sums are needed."""

    def of_positives(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and slope of each positive, summed over the rows with weights `[k, rows]`: `[e]` each.

        Weights `[2, k, rows]` give two of each, `[2, e]`.
        """

    def of_entries(self, weight: Tensor) -> Tensor:
        """Loss of each entry, summed over the positives of its task with weights `[e]`: `[k, rows]`."""

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
        slope = self.pairs.sums(_times(weight, self.rival), self.part)
        return self.pairs.sums(weight, self.loss), _times(slope, self.own)

    def of_entries(self, weight: Tensor) -> Tensor:
        """One sum."""
        return self.pairs.by_entry(self.loss, weight)

    def slope_of_entries(self, weight: Tensor) -> Tensor:
        """One sum."""
        return _times(self.pairs.by_entry(self.part, _times(weight, self.own)), self.rival)


@dataclass(frozen=True)
class SquaredHinges(PairLosses):
    """The squared hinge of `short`, which is zero or `score - lead`; the squares are never stored."""

    pairs: Pairs
    score: Tensor  # [k, rows]
    lead: Tensor  # [e]
    short: Tensor  # [e, rows]

    def of_positives(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of `short`, and that of `short * (score - lead)`."""
        first = self.pairs.sums(weight, self.short)
        return self.pairs.sums(weight * self.score, self.short) - self.lead * first, 2 * first

    def of_entries(self, weight: Tensor) -> Tensor:
        """The sum of `short * (score - lead)`."""
        first = self.pairs.by_entry(self.short, weight)
        return self.score * first - self.pairs.by_entry(self.short, weight * self.lead)

    def slope_of_entries(self, weight: Tensor) -> Tensor:
        """Twice the sum of `short`."""
        return self.pairs.by_entry(self.short, 2 * weight)


@dataclass(frozen=True)
class WholeSquares(PairLosses):
    """Squared hinges if all are above zero: their sums follow from moments, without pairs.

    With weights of sum `W`, mean `m` and variance `V`, the squares of `score - lead` sum to
    `W V + W (m - lead)^2`. Both are positive: nothing cancels.
    """

    pairs: Pairs
    score: Tensor  # [k, rows]
    lead: Tensor  # [e]
    own: float  # what a positive lacks to itself, the margin; zero if that counts like all others

    def of_positives(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """By moments of the scores of each task."""
        mass = weight.sum(-1)
        mean = (weight * self.score).sum(-1) / mass.clamp(min=torch.finfo(mass.dtype).tiny)
        around = (weight * (self.score - mean.unsqueeze(-1)).square()).sum(-1)
        mass, mean, around = (one.index_select(-1, self.pairs.columns) for one in (mass, mean, around))
        short = mean - self.lead
        pull = mass * short
        loss = torch.addcmul(around, pull, short)
        if self.own == 0:
            return loss, 2 * pull
        own = self.own * weight.flatten(-2).index_select(-1, self.pairs.places)
        return loss.sub_(own, alpha=self.own).clamp_(min=0), 2 * (pull - own)

    def of_entries(self, weight: Tensor) -> Tensor:
        """By moments of the leads of each task."""
        mass = self._sum(weight)
        mean = self._sum(weight * self.lead) / mass.clamp(min=torch.finfo(mass.dtype).tiny)
        around = self._sum(weight * (self.lead - self.pairs.of_task(mean)).square())
        short = self.score - mean.unsqueeze(1)
        loss = torch.addcmul(around.unsqueeze(1), mass.unsqueeze(1) * short, short)
        return self._without_own(loss, weight, self.own**2).clamp_(min=0)

    def slope_of_entries(self, weight: Tensor) -> Tensor:
        """Linear in the score."""
        weight = 2 * weight
        mass, first = self._sum(torch.stack([weight, weight * self.lead]))
        slope = torch.addcmul(-first.unsqueeze(-1), mass.unsqueeze(-1), self.score)
        return self._without_own(slope, weight, self.own)

    def _sum(self, values: Tensor) -> Tensor:
        """Values `[..., e]` summed over the positives of each task, `[..., k]`."""
        found = values.new_zeros(*values.shape[:-1], len(self.score))
        return found.index_add_(-1, self.pairs.columns, values)

    def _without_own(self, values: Tensor, weight: Tensor, own: float) -> Tensor:
        """Values `[k, rows]` or `[2, k, rows]` less `own` times the weights at the positives."""
        if weight.dim() == 2:
            for one, share in zip(values, weight, strict=True):
                self._without_own(one, share, own)
        elif own > 0:
            values.view(-1).index_add_(0, self.pairs.places, weight, alpha=-own)
        return values


def _times(values: Tensor, factor: Tensor | None) -> Tensor:
    return values if factor is None else values * factor


@dataclass(frozen=True)
class PairsAbove:
    r"""Squared hinges above a level of each positive, $(\max(s, 0)^2 - l_i)_+$ with what it lacks, `s`."""

    hinges: SquaredHinges  # of the pairs above
    mass: Tensor  # weight of the pairs above the level, [e]
    excess: Tensor  # sum of the excess, [e]
    d_own: Tensor  # its derivative by what the positive lacks, [e]

    @staticmethod
    def of(pairs: Pairs, score: Tensor, margin: float, level: Tensor, weight: Tensor) -> PairsAbove:
        """Sums over the rows, of scores and weights `[k, rows]` and levels `[e]`."""
        lead = pairs.own(score) - margin
        root = level.clamp(min=0).sqrt()  # above a level below zero are all pairs
        over = pairs.of_task(score).sub_((lead + root).unsqueeze(1)).clamp_(min=0)
        above = over.sign()
        mass = pairs.sums(weight, above)
        hinges = SquaredHinges(pairs, score, lead, over.addcmul_(above, root.unsqueeze(1)))
        squares, d_own = hinges.of_positives(weight)
        all_mass = pairs.of_task(weight.sum(1))
        return PairsAbove(
            hinges,
            mass=torch.where(level < 0, all_mass, mass),
            excess=squares - root * root * mass - level.clamp(max=0) * all_mass,
            d_own=d_own,
        )

    def d_score(self, share: Tensor, weight: Tensor) -> Tensor:
        """Derivative by the scores `[rows, k]` of the excess, summed with the positives' shares `[e]`."""
        by_entry = self.hinges.slope_of_entries(share).mul_(weight)
        return self.hinges.pairs.add_own(by_entry, -share * self.d_own)
