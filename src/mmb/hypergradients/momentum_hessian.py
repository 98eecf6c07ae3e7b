"""Algorithm 1 (v1): a moving average of each block's Hessian, inverted; for few lower variables."""

import math

import torch
from torch import Tensor

from mmb._numbers import as_number
from mmb.hypergradients.base import Estimate, Hypergradient, Memory, Rates, implicit_gradient
from mmb.hypergradients.exact import solve_positive_definite
from mmb.oracles import Oracles
from mmb.schedules import Schedule, value_at
from mmb.trees import Tree, blend, block_norm, ravel_blocks, unravel_blocks


class MomentumHessian(Hypergradient):
    r"""Tracks $s_i \leftarrow (1-\beta) s_i + \beta \nabla_{yy} g_i$ and uses $H_i = s_i^{-1}$.

    The estimate uses the old $s_i$; the new one is for the block's next visit. Memory is
    `m * d * d` numbers for lower variables of size `d`. The residual is
    $\|\nabla_{yy} g_i - s_i\|_F$.

    Args:
        beta: Weight of the newest Hessian, in (0, 1]; a number, or a function of the step.
        initial: Every `s_i` starts at this multiple of the identity; best near the Hessian's size.
    """

    def __init__(self, beta: Schedule = 0.9, initial: float = 1.0) -> None:
        if not callable(beta) and not 0 < as_number(beta) <= 1:
            raise ValueError(f"beta: expected the weight of the newest Hessian, in (0, 1], got {beta!r}")
        if not 0 < as_number(initial) < math.inf:
            raise ValueError(f"initial: expected a positive finite multiple of the identity, got {initial!r}")
        self.beta = beta
        self.initial = initial

    def init(self, lower: Tree) -> Memory:
        """`s_i = initial * I` for all blocks, [m, d, d]."""
        flat = ravel_blocks(lower)
        eye = self.initial * torch.eye(flat.shape[1], dtype=flat.dtype, device=flat.device)
        return {"hessian": eye.repeat(flat.shape[0], 1, 1)}

    def rates(self, step: int) -> dict[str, float]:
        """The value of `beta` at a step."""
        return {"beta": value_at(self.beta, step, "beta", most=1)}

    def estimate(self, at: Oracles, memory: Memory, draw: Tensor | None, rates: Rates) -> Estimate:
        """Estimate with the old `s_i`; see [`Hypergradient`][mmb.hypergradients.base.Hypergradient]."""
        old, new = memory["hessian"], at.hessian()  # s_i^t, grad_yy g_i
        flat, indefinite = solve_positive_definite(old, ravel_blocks(at.upper.grad_lower))  # H_i^t grad_y f_i
        grad_x, _, negative = implicit_gradient(at, unravel_blocks(flat, at.lower))
        return Estimate(
            grad_x,
            {"hessian": blend(old, new, rates["beta"])},  # s_i^{t+1}
            block_norm(new - old),
            indefinite | negative,
        )
