"""Conjugate gradients on the current batch's Hessian, all sampled blocks at once."""

import math

import torch
from torch import Tensor

from mmb._numbers import as_number, check_whole
from mmb.hypergradients.base import BatchSolution
from mmb.oracles import Oracles
from mmb.trees import Tree, block_dot, block_norm, scale_blocks, tree_map


class ConjugateGradient(BatchSolution):
    """Solves `grad_yy g_i v_i = grad_y f_i` by conjugate gradients from zero, with Hessian-vector products.

    Args:
        iterations: Most iterations; as many as a block has lower variables are exact up to rounding.
        tolerance: A block stops once its residual has fallen to this fraction of `|grad_y f_i|`.
    """

    def __init__(self, iterations: int = 10, tolerance: float = 1e-10) -> None:
        check_whole("iterations", iterations, 1)
        if not 0 <= as_number(tolerance) < math.inf:
            raise ValueError(f"tolerance: expected a finite number >= 0, got {tolerance!r}")
        self.iterations = iterations
        self.tolerance = tolerance

    def solve(self, at: Oracles, draw: Tensor | None) -> tuple[Tree, Tensor]:
        """The approximate solution."""
        return conjugate_gradient(at, at.upper.grad_lower, self.iterations, self.tolerance)


def conjugate_gradient(
    at: Oracles, right: Tree, iterations: int, tolerance: float = 1e-10
) -> tuple[Tree, Tensor]:
    """Solve `grad_yy g_i v_i = right_i`; beside `v_i`, whether negative curvature was met, per block."""
    length = block_norm(right)
    # of length one, or zero: squares of small numbers would be lost
    right = scale_blocks(right, 1 / torch.where(length > 0, length, 1))
    v = tree_map(torch.zeros_like, right)
    residual = direction = right
    square = block_dot(residual, residual)
    goal = tolerance**2 * square
    indefinite = torch.zeros_like(square, dtype=torch.bool)
    for _ in range(iterations):
        product = at.hessian_product(direction)
        indefinite = indefinite | at.negative_curvature(direction, product)
        active = square > goal  # a finished block stands still
        step = torch.where(active, square / block_dot(direction, product), 0)
        v = tree_map(torch.add, v, scale_blocks(direction, step))
        residual = tree_map(torch.sub, residual, scale_blocks(product, step))
        previous, square = square, block_dot(residual, residual)
        turn = torch.where(active, square / previous, 0)
        direction = tree_map(torch.add, residual, scale_blocks(direction, turn))
    return scale_blocks(v, length), indefinite
