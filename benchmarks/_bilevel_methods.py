"""Methods of the bilevel literature, written from their papers, on the counted oracles.

benchmark_bilevel has them all, but as a repository, not as a package in a registry. Each is a generator that
yields `x` after every step of `x`. `lr(calls)` gives the step size of `y` and `v`, `lr_x(calls)`
that of `x`, both from the oracle calls made so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from _bilevel_data import DIM_X, DIM_Y, SAMPLES_LOWER, SAMPLES_UPPER, Oracle, Samples

Schedule = Callable[[int], float]
Method = Callable[[Oracle, Schedule, Schedule], Iterator[Tensor]]

INNER = 10  # steps of an inner loop, terms of a series: the setting of benchmark_bilevel
STORM = 0.5  # weight of the newest gradient in MRBO: likewise


def soba(oracle: Oracle, lr: Schedule, lr_x: Schedule) -> Iterator[Tensor]:
    """SOBA (Dagreou et al. 2022): one SGD step of y, v and x together, from the old values."""
    x, y, v = oracle.problem.x0, oracle.problem.y0, torch.zeros_like(oracle.problem.y0)
    while True:
        step, step_x = lr(oracle.calls), lr_x(oracle.calls)
        upper, lower = oracle.upper_batch(), oracle.lower_batch()
        grad_x, grad_y = oracle.grad_f(x, y, upper)
        x, y, v = (
            x - step_x * (grad_x - oracle.cross(v, lower)),
            y - step * oracle.grad_g(x, y, lower),
            v - step * (oracle.hvp(v, lower) - grad_y),
        )
        yield x


def saba(oracle: Oracle, lr: Schedule, lr_x: Schedule) -> Iterator[Tensor]:
    """SABA (Dagreou et al. 2022): SOBA with the variance reduction of SAGA, one memory per fixed batch."""
    x, y, v = oracle.problem.x0, oracle.problem.y0, torch.zeros_like(oracle.problem.y0)
    size = oracle.batch_size
    lowers, uppers = SAMPLES_LOWER // size, SAMPLES_UPPER // size
    grad_g, hvp, cross = (_Memory(lowers, dim) for dim in (DIM_Y, DIM_Y, DIM_X))
    grad_f_x, grad_f_y = (_Memory(uppers, dim) for dim in (DIM_X, DIM_Y))
    while True:
        step, step_x = lr(oracle.calls), lr_x(oracle.calls)
        i, j = oracle.fixed(uppers), oracle.fixed(lowers)
        upper, lower = fixed_batch(oracle.problem.f, i, size), fixed_batch(oracle.problem.g, j, size)
        grad_x, grad_y = oracle.grad_f(x, y, upper)
        grad_x, grad_y = grad_f_x.reduced(i, grad_x), grad_f_y.reduced(i, grad_y)
        x, y, v = (
            x - step_x * (grad_x - cross.reduced(j, oracle.cross(v, lower))),
            y - step * grad_g.reduced(j, oracle.grad_g(x, y, lower)),
            v - step * (hvp.reduced(j, oracle.hvp(v, lower)) - grad_y),
        )
        yield x


def amigo(oracle: Oracle, lr: Schedule, lr_x: Schedule) -> Iterator[Tensor]:
    """AmIGO (Arbel and Mairal 2022): inner loops for v and y, each warm-started, between steps of x."""
    x, y, v = oracle.problem.x0, oracle.problem.y0, torch.zeros_like(oracle.problem.y0)
    y = _descend(oracle, x, y, lr)
    while True:
        step, step_x = lr(oracle.calls), lr_x(oracle.calls)
        grad_x, grad_y = oracle.grad_f(x, y, oracle.upper_batch())
        for _ in range(INNER):
            v = v - step * (oracle.hvp(v, oracle.lower_batch()) - grad_y)
        x = x - step_x * (grad_x - oracle.cross(v, oracle.lower_batch()))
        yield x
        y = _descend(oracle, x, y, lr)


def stocbio(oracle: Oracle, lr: Schedule, lr_x: Schedule) -> Iterator[Tensor]:
    """StocBiO (Ji et al. 2021): an inner loop for y, and a new Neumann series for every step of x."""
    x, y = oracle.problem.x0, oracle.problem.y0
    while True:
        y = _descend(oracle, x, y, lr)
        step, step_x = lr(oracle.calls), lr_x(oracle.calls)
        grad_x, grad_y = oracle.grad_f(x, y, oracle.upper_batch())
        v = total = grad_y
        for _ in range(INNER):
            v = v - step * oracle.hvp(v, oracle.lower_batch())
            total = total + v
        x = x - step_x * (grad_x - oracle.cross(step * total, oracle.lower_batch()))
        yield x


def mrbo(oracle: Oracle, lr: Schedule, lr_x: Schedule) -> Iterator[Tensor]:
    """MRBO (Yang et al. 2021): single loop, recursive momentum on both gradients, Neumann series."""
    old = point = oracle.problem.x0, oracle.problem.y0
    momentum: tuple[Tensor, Tensor] | None = None
    while True:
        step, step_x = lr(oracle.calls), lr_x(oracle.calls)
        upper, lower = oracle.upper_batch(), oracle.lower_batch()
        factors = [oracle.lower_batch() for _ in range(INNER)]

        def gradients(
            at: tuple[Tensor, Tensor],
            upper: Samples = upper,
            lower: Samples = lower,
            factors: list[Samples] = factors,
            step: float = step,
        ) -> tuple[Tensor, Tensor]:
            grad_x, grad_y = oracle.grad_f(*at, upper)
            v = total = grad_y
            for factor in factors:
                v = v - step * oracle.hvp(v, factor)
                total = total + v
            return grad_x - oracle.cross(step * total, lower), oracle.grad_g(*at, lower)

        new = gradients(point)
        if momentum is None:
            momentum = new
        else:
            before = gradients(old)
            momentum = (
                new[0] + (1 - STORM) * (momentum[0] - before[0]),
                new[1] + (1 - STORM) * (momentum[1] - before[1]),
            )
        old, point = point, (point[0] - step_x * momentum[0], point[1] - step * momentum[1])
        yield point[0]


def _descend(oracle: Oracle, x: Tensor, y: Tensor, lr: Schedule) -> Tensor:
    for _ in range(INNER):
        y = y - lr(oracle.calls) * oracle.grad_g(x, y, oracle.lower_batch())
    return y


def fixed_batch(samples: Samples, index: int, size: int) -> Samples:
    """One of the batches into which the samples are cut."""
    return Samples(*(part[index * size : (index + 1) * size] for part in samples))


class _Memory:
    """The last gradient of every batch, starting at zero, and their mean."""

    def __init__(self, batches: int, dim: int) -> None:
        self.rows = torch.zeros(batches, dim, dtype=torch.float64)
        self.mean = torch.zeros(dim, dtype=torch.float64)

    def reduced(self, index: int, gradient: Tensor) -> Tensor:
        change = gradient - self.rows[index]
        direction = self.mean + change
        self.mean = self.mean + change / len(self.rows)
        self.rows[index] = gradient
        return direction
