"""Quadratic blocks with a known gradient, written once for one block (mmb) and once stacked (peers).

    g_i(x, y)    = 1/2 y'A_i y - y'(B_i x + b_i)
    f_i(x, a, y) = 1/2 |y - c_i|^2 + a (p_i'y - q_i) - 1/2 a^2

No peer solves min-max problems, so they get the dual maximized by hand, `a = p_i'y - q_i`, which leaves
the same function of `x` to minimize and one variable less to track.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

import mmb

DIM_X, DIM_Y = 50, 20
Draw = Callable[[Tensor], "Blocks"]


class Blocks(NamedTuple):
    """The coefficients of some blocks, leading axis blocks; doubles as a batch."""

    hessian: Tensor  # A_i, [k, d_y, d_y], eigenvalues from 1 to about 5
    cross: Tensor  # B_i, [k, d_y, d_x]
    linear: Tensor  # b_i, [k, d_y]
    target: Tensor  # c_i, [k, d_y]
    slope: Tensor  # p_i, [k, d_y]
    offset: Tensor  # q_i, [k]


class Truth(NamedTuple):
    """`F` in closed form: its gradient is `curvature @ x - linear`."""

    curvature: Tensor
    linear: Tensor
    smoothness: float  # largest eigenvalue of the curvature

    def gradient_norm(self, x: Tensor) -> float:
        """`|grad F(x)|`."""
        return float((self.curvature @ x.detach().double().cpu() - self.linear).norm())


def make_blocks(num_blocks: int, generator: torch.Generator) -> Blocks:
    """Draw blocks whose own minima scatter around one common `x`."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(num_blocks, *shape, generator=generator)

    root = normal(DIM_Y, DIM_Y)
    hessian = torch.baddbmm(torch.eye(DIM_Y).expand(num_blocks, -1, -1), root, root.mT, alpha=1 / DIM_Y)
    del root  # memory counts with a million blocks
    cross = normal(DIM_Y, DIM_X)
    cross *= torch.logspace(0, -0.5, DIM_X)  # so that F has condition number about 10
    common = torch.randn(DIM_X, generator=generator)
    linear = normal(DIM_Y)
    target = torch.linalg.solve(hessian, cross @ common + linear) + 0.5 * normal(DIM_Y)
    slope = normal(DIM_Y) / DIM_Y**0.5
    offset = (slope * target).sum(1) + 0.5 * normal()
    return Blocks(hessian, cross, linear, target, slope, offset)


def truth(blocks: Blocks) -> Truth:
    """Closed form of `F`, summed in slices to spare memory."""
    num_blocks = len(blocks.offset)
    curvature, linear = torch.zeros(DIM_X, DIM_X).double(), torch.zeros(DIM_X).double()
    for start in range(0, num_blocks, 10_000):
        a, b, c, d, p, q = (part[start : start + 10_000].double() for part in blocks)
        jacobian = torch.linalg.solve(a, b)  # y_i(x) = jacobian x + shift
        shift = torch.linalg.solve(a, c)
        along = torch.einsum("kyx,ky->kx", jacobian, p)
        curvature += torch.einsum("kyx,kyz->xz", jacobian, jacobian) + along.T @ along
        linear += torch.einsum("kyx,ky->x", jacobian, d - shift) + along.T @ (q - (p * shift).sum(1))
    curvature, linear = curvature / num_blocks, linear / num_blocks
    return Truth(curvature, linear, float(torch.linalg.eigvalsh(curvature)[-1]))


class Gather:
    """Batches: the coefficients of the sampled blocks, noisy if asked, at a cost of the sampled blocks alone.

    Noise comes from a pool of draws with mean zero, as a data loader would read samples rather than make
    them; it disturbs the Hessian and the linear terms of `g`, and the target in `f`.
    """

    POOL = 1024

    def __init__(self, blocks: Blocks, noise: float, generator: torch.Generator) -> None:
        self.blocks, self.noise, self.generator = blocks, noise, generator
        if noise:
            square = torch.randn(self.POOL, DIM_Y, DIM_Y, generator=generator)
            pool = [
                0.5 * (square + square.mT) / DIM_Y**0.5,
                torch.randn(self.POOL, DIM_Y, generator=generator),
                torch.randn(self.POOL, DIM_Y, generator=generator),
            ]
            self.pool = [noise * (draws - draws.mean(0)) for draws in pool]

    def __call__(self, chosen: Tensor | None) -> Blocks:
        """Coefficients of the chosen blocks; None is all of them."""
        batch = (
            self.blocks if chosen is None else Blocks(*(part.index_select(0, chosen) for part in self.blocks))
        )
        if not self.noise:
            return batch
        pick = torch.randint(self.POOL, (len(batch.offset),), generator=self.generator)
        hessian, linear, target = (draws.index_select(0, pick) for draws in self.pool)
        return batch._replace(
            hessian=batch.hessian + hessian, linear=batch.linear + linear, target=batch.target + target
        )


def upper(x: Tensor, dual: Tensor, y: Tensor, batch: Blocks) -> Tensor:
    """`f` of one block."""
    gap = y - batch.target
    return 0.5 * gap @ gap + dual * (batch.slope @ y - batch.offset) - 0.5 * dual**2


def lower(x: Tensor, y: Tensor, batch: Blocks) -> Tensor:
    """`g` of one block."""
    return 0.5 * y @ (batch.hessian @ y) - y @ (batch.cross @ x + batch.linear)


def stacked_upper(y: Tensor, batch: Blocks) -> Tensor:
    """Mean of `f` over blocks, the dual maximized; y: [k, d_y]."""
    return 0.5 * ((y - batch.target) ** 2).sum(1).add(((batch.slope * y).sum(1) - batch.offset) ** 2).mean()


def stacked_lower(x: Tensor, y: Tensor, batch: Blocks) -> Tensor:
    """Sum of `g` over blocks; y: [k, d_y]."""
    quadratic = 0.5 * (y * (batch.hessian @ y.unsqueeze(-1)).squeeze(-1)).sum()
    return quadratic - (y * (batch.cross @ x + batch.linear)).sum()


def problem(num_blocks: int) -> mmb.Problem:
    """The blocks as a problem with one unconstrained dual each."""
    return mmb.Problem(upper=upper, lower=lower, num_blocks=num_blocks)
