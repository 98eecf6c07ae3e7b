"""Intervals and tests: noise of the test rows and, if a method was run several times, of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from mmb._extras import require

LEVEL = 0.95
FEWEST = 10
"""Tasks with fewer test positives or negatives get no interval: it would promise too much."""


@dataclass(frozen=True)
class UncertainValue:
    """An estimate, or one per task, with its variance and the degrees of freedom of that for Student's t."""

    value: Tensor
    variance: Tensor
    freedom: Tensor

    def interval(self) -> tuple[Tensor, Tensor]:
        """Ends of the 95% interval of a difference: value plus and minus t standard errors."""
        reach = self._quantile() * self.variance.sqrt()
        return self.value - reach, self.value + reach

    def share_interval(self) -> tuple[Tensor, Tensor]:
        """Ends of the 95% interval of an area in (0, 1): symmetric in its logit, so inside (0, 1).

        NaN if the variance is zero: a perfect ranking of few rows does not show how good it is.
        """
        known = (self.variance > 1e-18) & (self.value > 0) & (self.value < 1)  # more than rounding
        center = self.value.where(known, 0.5).logit()
        reach = self._quantile() * self.variance.sqrt() / (self.value * (1 - self.value))
        low, high = (center - reach).sigmoid(), (center + reach).sigmoid()
        return low.where(known, torch.nan), high.where(known, torch.nan)

    def p_value(self) -> Tensor:
        """Two-sided p value of a difference; 1 if the difference is zero."""
        ratio = (self.value.abs() / self.variance.sqrt()).where(self.value != 0, 0.0)
        return 2 * _student("stdtr", self.freedom, -ratio.numpy())

    def _quantile(self) -> Tensor:
        return _student("stdtrit", self.freedom, (1 + LEVEL) / 2)


@dataclass(frozen=True)
class Sample:
    """The results of several runs of one method on the same test rows."""

    values: Tensor  # one per run and task, `[k, m]`, or per run `[k]`
    influence: Tensor  # mean over the runs of the influence of each row, `[n, m]` or `[n]`
    row_freedom: Tensor  # degrees of freedom of the variance by rows, `[m]` or a scalar

    @classmethod
    def together(cls, samples: Sequence[Self]) -> Self:
        """The runs of several samples on the same rows as one."""
        runs = [len(sample.values) for sample in samples]
        total = sum((n * sample.influence for n, sample in zip(runs, samples, strict=True)), torch.zeros(()))
        values = torch.cat([sample.values for sample in samples])
        return cls(values, total / sum(runs), samples[0].row_freedom)

    def mean(self, labels: Tensor) -> Sample:
        """The mean over the tasks with both classes among the labels `[n, m]`; rows are still the sample."""
        some = [(labels == sign).any(1).sum() for sign in (1, 0)]
        return Sample(self.values.nanmean(-1), self.influence.nanmean(-1), row_freedom(*some))

    def estimate(self) -> UncertainValue:
        """Mean over the runs, with the noise of rows and of training."""
        return _estimate(self.values.mean(0), self.influence, self.row_freedom, [self.values])

    def minus(self, other: Sample) -> UncertainValue:
        """The paired difference: rows that both are judged on count once."""
        difference = self.values.mean(0) - other.values.mean(0)
        influence = self.influence - other.influence
        return _estimate(difference, influence, self.row_freedom, [self.values, other.values])


def _estimate(value: Tensor, influence: Tensor, row_freedom: Tensor, runs: list[Tensor]) -> UncertainValue:
    r"""Add up variances of independent sources; degrees of freedom by Welch and Satterthwaite.

    $$
    V = \sum_i D_i^2 + \sum_{methods} \frac{s^2}{k}, \qquad \nu = V^2 / \sum_{parts} V_p^2 / \nu_p
    $$
    """
    parts = [(influence.square().sum(0), row_freedom)]
    parts += [
        (values.var(0) / len(values), torch.tensor(len(values) - 1.0, dtype=torch.float64))
        for values in runs
        if len(values) > 1
    ]
    variance = torch.stack([part for part, _ in parts]).sum(0)
    spread = torch.stack([part.square() / freedom for part, freedom in parts]).sum(0)
    freedom = (variance.square() / spread).where(spread > 0, row_freedom)
    return UncertainValue(value, variance, freedom.clamp(min=1))


def row_freedom(positives: Tensor, negatives: Tensor) -> Tensor:
    """Degrees of freedom of a variance by rows: the smaller class, less one; NaN if below `FEWEST`."""
    fewer = torch.minimum(positives, negatives).double()
    return (fewer - 1).where(fewer >= FEWEST, torch.nan)


def holm(p_values: Tensor) -> Tensor:
    """P values that keep the chance of any false claim at the level (Holm); NaN does not count as a test."""
    return _adjust(p_values, lambda ordered, rank: (ordered * (len(rank) + 1 - rank)).cummax(0).values)


def benjamini_hochberg(p_values: Tensor) -> Tensor:
    """P values that keep the expected share of false claims at the level (Benjamini and Hochberg)."""
    return _adjust(
        p_values, lambda ordered, rank: (ordered * len(rank) / rank).flip(0).cummin(0).values.flip(0)
    )


def _adjust(p_values: Tensor, rule: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Apply a rule, of p values in rising order and their ranks from 1, to those that are not NaN."""
    tested = (~p_values.isnan()).nonzero().squeeze(1)
    result = torch.full_like(p_values, torch.nan)
    if len(tested):
        ordered, order = p_values[tested].sort()
        rank = torch.arange(1, len(tested) + 1, dtype=torch.float64)
        result[tested[order]] = rule(ordered, rank).clamp(max=1)
    return result


def _student(function: str, freedom: Tensor, value: Any) -> Tensor:
    """A function of Student's t in `scipy.special`: `stdtr`, the distribution, or `stdtrit`, its inverse."""
    found = getattr(require("scipy.special", extra="training"), function)(freedom.numpy(), value)
    return torch.as_tensor(found, dtype=torch.float64)
