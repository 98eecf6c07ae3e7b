"""What every hypergradient estimator is: a memory per block, and an estimate made from it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from mmb.oracles import Oracles
from mmb.trees import Tree, add_scaled, block_norm

Memory = dict[str, Tree]
Rates = Mapping[str, float | Tensor]  # tensors in a compiled step


class Estimate(NamedTuple):
    """What an estimator returns for the sampled blocks of one step."""

    grad_x: Tree  # (weighted) sum over the sampled blocks of the hypergradient estimates
    memory: Memory  # new memory of the sampled blocks
    residual: Tensor  # [k]: how far the estimator is from what it tracks
    indefinite: Tensor  # [k], bool: a lower-level Hessian that is not positive definite was met


class Hypergradient(ABC):
    r"""Estimates $\nabla_x f_i - \nabla_{xy} g_i [\nabla_{yy} g_i]^{-1} \nabla_y f_i$.

    An estimator holds parameters only. What it remembers of each block lives in the solver's state, as
    tensors with the blocks as leading axis, and reaches `estimate` for the sampled blocks alone.
    """

    calls: tuple[str, ...] = ("products",)
    """Which derivatives an estimate asks for, beside those of `f`: see `mmb.variance_reduction`. What it asks
    for twice is named twice, the second time with `_2` after it."""

    def init(self, lower: Tree) -> Memory:
        """Memory of all blocks before the first step.

        Args:
            lower: The lower variables of all blocks, leading axis `m`.

        Returns:
            Named tensors (or trees) with leading axis `m`; empty if the estimator remembers nothing.
        """
        return {}

    def draw(self, blocks: int, generator: torch.Generator) -> Tensor | None:
        """Draw what the next estimate needs at random, so that the estimate itself is a pure function.

        Args:
            blocks: Number of sampled blocks.
            generator: Source of randomness, kept in the solver's state.

        Returns:
            A tensor with leading axis `blocks`, or None for an estimator that needs no randomness.
        """
        return None

    def rates(self, step: int) -> dict[str, float]:
        """The estimator's own step sizes at a step, which may follow schedules.

        They reach `estimate` as numbers, and in a compiled step as tensors, so that it is not compiled again
        for every new value.

        Args:
            step: Number of the step, from 0.

        Returns:
            Step sizes by name; empty for an estimator without any.
        """
        return {}

    def vector(self, at: Oracles, draw: Tensor | None) -> Tree | None:
        """The `v_i` of an estimator that solves on the batch; `Storm` asks for it at the last point too.

        Args:
            at: Derivatives at the sampled blocks.
            draw: What `draw` gave for this step.

        Returns:
            One vector per block, shaped as the lower variables; None if it comes from memory.
        """
        return None

    @abstractmethod
    def estimate(self, at: Oracles, memory: Memory, draw: Tensor | None, rates: Rates) -> Estimate:
        """Estimate the hypergradient with the OLD memory and return the new memory beside it.

        Args:
            at: Derivatives at the sampled blocks.
            memory: Memory of the sampled blocks.
            draw: What `draw` gave for this step.
            rates: What `rates` gave for this step.

        Returns:
            The estimate; nothing is changed in place.
        """


class BatchSolution(Hypergradient):
    """An estimator that solves for `v_i` on the batch, and remembers nothing."""

    @abstractmethod
    def solve(self, at: Oracles, draw: Tensor | None) -> tuple[Tree, Tensor]:
        """The vectors `v_i` and, per block, whether a Hessian that is not positive definite was met.

        Args:
            at: Derivatives at the sampled blocks.
            draw: What `draw` gave for this step.
        """

    def estimate(self, at: Oracles, memory: Memory, draw: Tensor | None, rates: Rates) -> Estimate:
        """Estimate with the solution; see [`Hypergradient`][mmb.hypergradients.base.Hypergradient]."""
        v, indefinite = self.solve(at, draw)
        grad_x, slope, _ = implicit_gradient(at, v)
        return Estimate(grad_x, memory, block_norm(slope), indefinite)

    def vector(self, at: Oracles, draw: Tensor | None) -> Tree:
        """The solution alone."""
        return self.solve(at, draw)[0]


def implicit_gradient(at: Oracles, v: Tree) -> tuple[Tree, Tree, Tensor]:
    """Hypergradient `sum_i grad_x f_i - grad_xy g_i v_i`, with `v_i` for `[grad_yy g_i]^-1 grad_y f_i`.

    Beside it, per block: the slope `grad_yy g_i v_i - grad_y f_i`, zero where `v_i` is exact, and whether
    `v_i` shows a direction of negative curvature.
    """
    cross, hessian_product = at.products(v)
    grad_x = add_scaled(at.upper.grad_x, -1, cross)
    slope = add_scaled(hessian_product, -1, at.upper.grad_lower)
    return grad_x, slope, at.negative_curvature(v, hessian_product)
