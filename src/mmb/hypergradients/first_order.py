"""A penalty (value-function) estimate that needs no second derivatives."""

import math
from typing import Literal

import torch
from torch import Tensor

from mmb._numbers import as_number
from mmb.hypergradients.base import Estimate, Hypergradient, Memory, Rates
from mmb.oracles import Oracles
from mmb.schedules import Schedule, value_at
from mmb.trees import Tree, add_scaled, block_norm, tree_map


class FirstOrder(Hypergradient):
    r"""Replaces $y_i(x) = \arg\min g_i$ by a penalty on $g_i(x, y) - \min_y g_i(x, y)$.

    Beside the lower variable $y_i$ it tracks $p_i \approx \arg\min_y f_i/\lambda + g_i$:

    $$
    \Delta_i = \nabla_x f_i(x, \alpha_i, p_i) + \lambda [\nabla_x g_i(x, p_i) - \nabla_x g_i(x, y_i)],
    \qquad p_i \leftarrow p_i - \eta [\nabla_y f_i(x, \alpha_i, p_i)/\lambda + \nabla_y g_i(x, p_i)]
    $$

    Its bias is of order $1/\lambda$. With `order=2` it tracks
    $p_i^\pm \approx \arg\min_y g_i \pm f_i/\lambda$ instead, on both sides of $y_i$, and takes the central
    difference, whose bias is of order $1/\lambda^2$:

    $$
    \Delta_i = \tfrac12 [\nabla_x f_i(x, \alpha_i, p_i^+) + \nabla_x f_i(x, \alpha_i, p_i^-)]
    + \tfrac{\lambda}{2} [\nabla_x g_i(x, p_i^+) - \nabla_x g_i(x, p_i^-)]
    $$

    Noise in `g` is multiplied by $\lambda$ unless the same batch serves both terms, as it does here. The
    residual is the size of the bracket in the update of $p_i$. Curvature is never seen, so an indefinite
    Hessian goes unnoticed.

    Args:
        penalty: $\lambda$; with `order=2` above the curvature of `f` over that of `g` in the lower variable,
            so that $p_i^-$ exists.
        lr: The step size of `p`; a number, or a function of the step.
        order: 1, or 2 for the central difference, which remembers one more vector per block.
    """

    def __init__(self, penalty: float, lr: Schedule, order: Literal[1, 2] = 1) -> None:
        if not 0 < as_number(penalty) < math.inf:
            raise ValueError(f"penalty: expected a positive finite multiplier, got {penalty!r}")
        if not callable(lr) and not 0 < as_number(lr) < math.inf:
            raise ValueError(f"lr: expected a positive step size for the penalized variable, got {lr!r}")
        if order not in (1, 2):
            raise ValueError(f"order: expected 1 or 2, got {order!r}")
        self.penalty = penalty
        self.lr = lr
        self.order = order
        other = ("lower",) if order == 1 else ("upper_other_2", "lower_other_2")
        self.calls = ("upper_other", "lower_other", *other)

    def init(self, lower: Tree) -> Memory:
        """`p_i = y_i` for all blocks."""
        names = ("penalized",) if self.order == 1 else ("penalized", "opposite")
        return {name: tree_map(torch.clone, lower) for name in names}

    def rates(self, step: int) -> dict[str, float]:
        """The value of `lr` at a step."""
        return {"lr": value_at(self.lr, step, "lr of the hypergradient")}

    def estimate(self, at: Oracles, memory: Memory, draw: Tensor | None, rates: Rates) -> Estimate:
        """Estimate with the old `p_i`; see [`Hypergradient`][mmb.hypergradients.base.Hypergradient]."""
        sides = [_Side(at, memory["penalized"], 1 / self.penalty)]
        if self.order == 1:
            gap = add_scaled(sides[0].lower.grad_x, -1, at.lower_first.grad_x)
            grad_x = add_scaled(sides[0].upper.grad_x, self.penalty, gap)
        else:
            sides.append(_Side(at, memory["opposite"], -1 / self.penalty))
            gap = add_scaled(sides[0].lower.grad_x, -1, sides[1].lower.grad_x)
            twice = add_scaled(sides[0].upper.grad_x, 1, sides[1].upper.grad_x)
            grad_x = tree_map(lambda f, g: (f + self.penalty * g) / 2, twice, gap)
        names = ("penalized", "opposite")
        moved = {name: side.moved(rates["lr"]) for name, side in zip(names, sides, strict=False)}
        residual = torch.stack([block_norm(side.slope) for side in sides]).amax(0)
        return Estimate(grad_x, moved, residual, torch.zeros_like(residual, dtype=torch.bool))


class _Side:
    """Derivatives at the point that minimizes `g + weight * f` once it has settled."""

    def __init__(self, at: Oracles, point: Tree, weight: float) -> None:
        self.point = point
        self.upper, self.lower = at.upper_at(point), at.lower_at(point)
        self.slope = add_scaled(self.lower.grad_lower, weight, self.upper.grad_lower)

    def moved(self, lr: float | Tensor) -> Tree:
        return add_scaled(self.point, -lr, self.slope)
