"""Simulated bilevel quadratics (one block, no dual), with counted oracles and the answer in closed form.

Drawn as benchmark_bilevel draws its simulated quadratics: both levels are means over samples of

    1/2 (p_j'y)^2 + 1/2 (q_j'x)^2 + (r_j'x)(s_j'y) + b_j'y + d_j'x

with random directions: the mean Hessian in y has its eigenvalues spread from 0.1 to 1, the one in x likewise
but for one zero, the mean cross term has singular values 0.1. Every sample's Hessian has rank one, so a batch
of 64 gives a singular Hessian in 100 variables: this is hard on methods that invert a batch.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

DIM_X, DIM_Y = 10, 100
SAMPLES_LOWER, SAMPLES_UPPER = 32768, 1024
SMALLEST, LARGEST, CROSS = 0.1, 1.0, 0.1


class Samples(NamedTuple):
    """Coefficients of some samples, leading axis samples; doubles as a batch."""

    lower: Tensor  # p_j, [n, d_y]
    upper: Tensor  # q_j, [n, d_x]
    cross_upper: Tensor  # r_j, [n, d_x]
    cross_lower: Tensor  # s_j, [n, d_y]
    linear_lower: Tensor  # b_j, [n, d_y]
    linear_upper: Tensor  # d_j, [n, d_x]

    def take(self, rows: Tensor) -> Samples:
        """The chosen samples."""
        return Samples(*(part[rows] for part in self))


class Mean(NamedTuple):
    """The mean of samples as one quadratic."""

    yy: Tensor
    xx: Tensor
    xy: Tensor  # [d_x, d_y]
    y: Tensor
    x: Tensor


def value(x: Tensor, y: Tensor, batch: Samples) -> Tensor:
    """Mean of the samples' values at `(x, y)`."""
    square = 0.5 * ((batch.lower @ y) ** 2 + (batch.upper @ x) ** 2)
    cross = (batch.cross_upper @ x) * (batch.cross_lower @ y)
    return (square + cross + batch.linear_lower @ y + batch.linear_upper @ x).mean()


def _rotation(size: int, generator: torch.Generator) -> Tensor:
    rotation: Tensor = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q
    return rotation


def _draw(number: int, generator: torch.Generator) -> Samples:
    def normal(size: int) -> Tensor:
        return torch.randn(number, size, generator=generator, dtype=torch.float64)

    def spread(size: int) -> Tensor:
        return torch.logspace(math.log10(SMALLEST), math.log10(LARGEST), size, dtype=torch.float64)

    turn_y, turn_x = _rotation(DIM_Y, generator), _rotation(DIM_X, generator)
    eigenvalues_y = spread(DIM_Y)
    eigenvalues_x = torch.cat([torch.zeros(1, dtype=torch.float64), spread(DIM_X - 1)])
    common = normal(DIM_Y)  # one draw in both factors, so that the mean cross term does not vanish
    left, right = _rotation(DIM_X, generator), _rotation(DIM_Y, generator)
    return Samples(
        lower=normal(DIM_Y) * eigenvalues_y.sqrt() @ turn_y.T,
        upper=normal(DIM_X) * eigenvalues_x.sqrt() @ turn_x.T,
        cross_upper=CROSS * common[:, :DIM_X] @ left.T,
        cross_lower=common @ right.T,
        linear_lower=normal(DIM_Y),
        linear_upper=normal(DIM_X),
    )


def _mean(samples: Samples) -> Mean:
    number = len(samples.lower)
    return Mean(
        yy=samples.lower.T @ samples.lower / number,
        xx=samples.upper.T @ samples.upper / number,
        xy=samples.cross_upper.T @ samples.cross_lower / number,
        y=samples.linear_lower.mean(0),
        x=samples.linear_upper.mean(0),
    )


class Bilevel:
    """`min_x f(x, y(x))` with `y(x) = argmin_y g(x, y)`; `h(x) = f(x, y(x))`."""

    def __init__(self, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.g, self.f = _draw(SAMPLES_LOWER, generator), _draw(SAMPLES_UPPER, generator)
        self.x0 = torch.rand(DIM_X, generator=generator, dtype=torch.float64)
        self.y0 = torch.randn(DIM_Y, generator=generator, dtype=torch.float64)
        g, f = _mean(self.g), _mean(self.f)
        jacobian = -torch.linalg.solve(g.yy, g.xy.T)  # y(x) = jacobian x + shift
        shift = -torch.linalg.solve(g.yy, g.y)
        mixed = f.xy @ jacobian
        self.curvature = f.xx + jacobian.T @ f.yy @ jacobian + mixed + mixed.T
        self.linear = f.x + f.xy @ shift + jacobian.T @ (f.yy @ shift + f.y)
        eigenvalues = torch.linalg.eigvalsh(self.curvature)
        self.smallest, self.largest = float(eigenvalues[0]), float(eigenvalues[-1])
        if self.smallest <= 0:
            raise ValueError(f"seed: expected one that gives a convex problem, got {seed}; try another")
        self.best = -torch.linalg.solve(self.curvature, self.linear)

    def gradient_norm(self, x: Tensor) -> float:
        """`|grad h(x)|`."""
        return float((self.curvature @ x + self.linear).norm())

    def suboptimality(self, x: Tensor) -> float:
        """`h(x) - min h`."""
        gap = x - self.best
        return float(0.5 * gap @ self.curvature @ gap)


class Oracle:
    """Batch derivatives of both levels; every call counts once per sample.

    Args:
        problem: The problem.
        batch_size: Samples per batch, drawn with replacement.
        generator: Source of the batches.
    """

    def __init__(self, problem: Bilevel, batch_size: int, generator: torch.Generator) -> None:
        self.problem, self.batch_size, self.generator = problem, batch_size, generator
        self.calls = 0

    def rows(self, number: int) -> Tensor:
        """Draw a batch out of `number` samples."""
        return torch.randint(number, (self.batch_size,), generator=self.generator)

    def fixed(self, number: int) -> int:
        """Draw one of `number` fixed batches."""
        return int(torch.randint(number, (), generator=self.generator))

    def lower_batch(self) -> Samples:
        """Samples of `g`."""
        return self.problem.g.take(self.rows(SAMPLES_LOWER))

    def upper_batch(self) -> Samples:
        """Samples of `f`."""
        return self.problem.f.take(self.rows(SAMPLES_UPPER))

    def count(self, per_sample: float) -> None:
        """Count calls that were made elsewhere."""
        self.calls += round(per_sample * self.batch_size)

    def grad_f(self, x: Tensor, y: Tensor, batch: Samples) -> tuple[Tensor, Tensor]:
        """`grad_x f` and `grad_y f`, one call."""
        self.count(1)
        along_x, along_y = batch.cross_upper @ x, batch.cross_lower @ y
        grad_x = batch.upper.T @ (batch.upper @ x) + batch.cross_upper.T @ along_y
        grad_y = batch.lower.T @ (batch.lower @ y) + batch.cross_lower.T @ along_x
        number = len(along_x)
        return grad_x / number + batch.linear_upper.mean(0), grad_y / number + batch.linear_lower.mean(0)

    def grad_g(self, x: Tensor, y: Tensor, batch: Samples) -> Tensor:
        """`grad_y g`."""
        self.count(1)
        grad = batch.lower.T @ (batch.lower @ y) + batch.cross_lower.T @ (batch.cross_upper @ x)
        return grad / len(batch.lower) + batch.linear_lower.mean(0)

    def hvp(self, v: Tensor, batch: Samples) -> Tensor:
        """`grad_yy g v`."""
        self.count(1)
        return batch.lower.T @ (batch.lower @ v) / len(batch.lower)

    def cross(self, v: Tensor, batch: Samples) -> Tensor:
        """`grad_xy g v`."""
        self.count(1)
        return batch.cross_upper.T @ (batch.cross_lower @ v) / len(batch.lower)
