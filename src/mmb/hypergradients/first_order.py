"""A penalty (value-function) estimate that needs no second derivatives."""

import math

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

    Its bias is of order $1/\lambda$, and noise in `g` is multiplied by $\lambda$ unless the
    same batch serves both terms, as it does here. The residual is the size of the bracket in the update of
    $p_i$. Curvature is never seen, so an indefinite Hessian goes unnoticed.

    Args:
        penalty: $\lambda$.
        lr: The step size of `p`; a number, or a function of the step.
    """

    calls = ("upper_other", "lower_other", "lower")

    def __init__(self, penalty: float, lr: Schedule) -> None:
        if not 0 < as_number(penalty) < math.inf:
            raise ValueError(f"penalty: expected a positive finite multiplier, got {penalty!r}")
        if not callable(lr) and not 0 < as_number(lr) < math.inf:
            raise ValueError(f"lr: expected a positive step size for the penalized variable, got {lr!r}")
        self.penalty = penalty
        self.lr = lr

    def init(self, lower: Tree) -> Memory:
        """`p_i = y_i` for all blocks."""
        return {"penalized": tree_map(torch.clone, lower)}

    def rates(self, step: int) -> dict[str, float]:
        """The value of `lr` at a step."""
        return {"lr": value_at(self.lr, step, "lr of the hypergradient")}

    def estimate(self, at: Oracles, memory: Memory, draw: Tensor | None, rates: Rates) -> Estimate:
        """Estimate with the old `p_i`; see [`Hypergradient`][mmb.hypergradients.base.Hypergradient]."""
        old = memory["penalized"]
        upper, penalized, current = at.upper_at(old), at.lower_at(old), at.lower_first
        gap = add_scaled(penalized.grad_x, -1, current.grad_x)
        slope = add_scaled(penalized.grad_lower, 1 / self.penalty, upper.grad_lower)
        residual = block_norm(slope)
        return Estimate(
            add_scaled(upper.grad_x, self.penalty, gap),
            {"penalized": add_scaled(old, -rates["lr"], slope)},
            residual,
            torch.zeros_like(residual, dtype=torch.bool),
        )
