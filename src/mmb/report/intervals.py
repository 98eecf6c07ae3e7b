"""Intervals and tests: noise of the test rows and, where a method was run several times, of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from mmb._extras import require

LEVEL = 0.95
FEWEST = 10
"""Tasks with fewer test positives, or negatives, get no interval: it would promise too much."""


@dataclass(frozen=True)
class Estimate:
    """A number, or one per task, with what is known of its error.

    Attributes:
        value: The estimate, float64.
        variance: Of the estimate.
        freedom: Degrees of freedom of the variance, for Student's t.
    """

    value: Tensor
    variance: Tensor
    freedom: Tensor

    def interval(self) -> tuple[Tensor, Tensor]:
        """Ends of the 95 % interval of a difference: value plus and minus t standard errors."""
        reach = self._quantile() * self.variance.sqrt()
        return self.value - reach, self.value + reach

    def share_interval(self) -> tuple[Tensor, Tensor]:
        """Ends of the 95 % interval of an area in (0, 1): symmetric in its logit, so inside (0, 1).

        NaN where the variance is zero: a perfect ranking of few rows does not show how good it is.
        """
        known = (self.variance > 1e-18) & (self.value > 0) & (self.value < 1)  # more than rounding
        centre = self.value.where(known, 0.5).logit()
        reach = self._quantile() * self.variance.sqrt() / (self.value * (1 - self.value))
        low, high = (centre - reach).sigmoid(), (centre + reach).sigmoid()
        return low.where(known, torch.nan), high.where(known, torch.nan)

    def p_value(self) -> Tensor:
        """Two-sided, of a difference of zero; 1 where the difference is zero."""
        ratio = (self.value.abs() / self.variance.sqrt()).where(self.value != 0, 0.0)
        return _scipy(2 * _special().stdtr(self.freedom.numpy(), -ratio.numpy()))

    def _quantile(self) -> Tensor:
        return _scipy(_special().stdtrit(self.freedom.numpy(), (1 + LEVEL) / 2))


@dataclass(frozen=True)
class Sample:
    """What several runs of one method came to, on the same test rows.

    Attributes:
        values: One per run and task, `[k, m]`, or per run `[k]`.
        influence: Mean over the runs of the influence of each row, `[n, m]` or `[n]`.
        row_freedom: Degrees of freedom of the variance by rows, `[m]` or a scalar.
    """

    values: Tensor
    influence: Tensor
    row_freedom: Tensor

    @classmethod
    def together(cls, samples: Sequence[Self]) -> Self:
        """The runs of several samples on the same rows as one."""
        runs = [len(sample.values) for sample in samples]
        total = sum((n * sample.influence for n, sample in zip(runs, samples, strict=True)), torch.zeros(()))
        values = torch.cat([sample.values for sample in samples])
        return cls(values, total / sum(runs), samples[0].row_freedom)

    def mean(self, labels: Tensor) -> Sample:
        """The mean over tasks, of those that have both classes; rows are still what is drawn.

        Args:
            labels: Of the test rows, `[n, m]`.
        """
        some = [(labels == sign).any(1).sum() for sign in (1, 0)]
        return Sample(self.values.nanmean(-1), self.influence.nanmean(-1), _freedom(*some))

    def estimate(self) -> Estimate:
        """Mean over the runs, with the noise of rows and of training."""
        return _estimate(self.values.mean(0), self.influence, self.row_freedom, [self.values])

    def minus(self, other: Sample) -> Estimate:
        """The paired difference: rows that both were judged on count once."""
        difference = self.values.mean(0) - other.values.mean(0)
        influence = self.influence - other.influence
        return _estimate(difference, influence, self.row_freedom, [self.values, other.values])


def _estimate(value: Tensor, influence: Tensor, row_freedom: Tensor, runs: list[Tensor]) -> Estimate:
    r"""Add up variances of independent sources; degrees of freedom as Welch and Satterthwaite have it.

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
    return Estimate(value, variance, freedom.clamp(min=1))


def row_freedom(labels: Tensor) -> Tensor:
    """Degrees of freedom of each task's variance by rows `[m]`: its smaller class, less one.

    NaN, which gives no interval, for tasks with fewer than `FEWEST` of a class.
    """
    return _freedom((labels == 1).sum(0), (labels == 0).sum(0))


def _freedom(positives: Tensor, negatives: Tensor) -> Tensor:
    fewer = torch.minimum(positives, negatives).double()
    return (fewer - 1).where(fewer >= FEWEST, torch.nan)


def holm(p_values: Tensor) -> Tensor:
    """P values that keep the chance of any false claim at the level (Holm); NaN counts as no test."""
    return _adjust(p_values, family_wise=True)


def benjamini_hochberg(p_values: Tensor) -> Tensor:
    """P values that keep the expected share of false claims at the level (Benjamini and Hochberg)."""
    return _adjust(p_values, family_wise=False)


def _adjust(p_values: Tensor, family_wise: bool) -> Tensor:
    tested = ~p_values.isnan()
    ordered, order = p_values[tested].sort()
    count = len(ordered)
    rank = torch.arange(1, count + 1, dtype=torch.float64)
    if family_wise:
        adjusted = (ordered * (count + 1 - rank)).cummax(0).values if count else ordered
    else:
        adjusted = (ordered * count / rank).flip(0).cummin(0).values.flip(0) if count else ordered
    result, inner = torch.full_like(p_values, torch.nan), torch.empty_like(ordered)
    inner[order] = adjusted.clamp(max=1)
    result[tested] = inner
    return result


def _special() -> Any:
    return require("scipy.special", extra="training")


def _scipy(values: Any) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)
