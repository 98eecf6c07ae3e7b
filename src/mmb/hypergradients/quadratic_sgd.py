"""Algorithm 2 (v2): one projected SGD step on a quadratic per visit; for lower problems of many variables."""

import math

import torch
from torch import Tensor

from mmb._numbers import as_number
from mmb.hypergradients.base import Estimate, Hypergradient, Memory, Rates, implicit_gradient
from mmb.oracles import Oracles
from mmb.schedules import Schedule, value_at
from mmb.trees import Tree, add_scaled, block_norm, scale_blocks, tree_map


class QuadraticSGD(Hypergradient):
    r"""Tracks $v_i \approx [\nabla_{yy} g_i]^{-1} \nabla_y f_i$ by SGD on a quadratic.

    $$
    v_i \leftarrow \Pi_{\|v\| \le \Gamma}[v_i - \eta_3 (\nabla_{yy} g_i v_i - \nabla_y f_i)]
    $$

    Only Hessian-vector products are used, one backward pass for Hessian and cross product together. The
    estimate uses the old $v_i$. The residual is $\|\nabla_{yy} g_i v_i - \nabla_y f_i\|$.

    Args:
        lr: The step size `eta_3`; a number, or a function of the step.
        radius: The radius `Gamma` of the ball; the theory takes `C_f / mu_g`. Infinity: no projection.
    """

    def __init__(self, lr: Schedule, radius: float = math.inf) -> None:
        if not callable(lr) and not 0 < as_number(lr) < math.inf:
            raise ValueError(f"lr: expected a positive step size for v, got {lr!r}")
        if not as_number(radius) > 0:
            raise ValueError(f"radius: expected a positive radius (or math.inf), got {radius!r}")
        self.lr = lr
        self.radius = radius

    def init(self, lower: Tree) -> Memory:
        """`v_i = 0` for all blocks."""
        return {"v": tree_map(torch.zeros_like, lower)}

    def rates(self, step: int) -> dict[str, float]:
        """The value of `lr` at a step."""
        return {"lr": value_at(self.lr, step, "lr of the hypergradient")}

    def estimate(self, at: Oracles, memory: Memory, draw: Tensor | None, rates: Rates) -> Estimate:
        """Estimate with the old `v_i`; see [`Hypergradient`][mmb.hypergradients.base.Hypergradient]."""
        old = memory["v"]  # v_i^t
        grad_x, slope, indefinite = implicit_gradient(at, old)
        return Estimate(
            grad_x,
            {"v": self._project(add_scaled(old, -rates["lr"], slope))},  # v_i^{t+1}
            block_norm(slope),
            indefinite,
        )

    def _project(self, v: Tree) -> Tree:
        if self.radius == math.inf:
            return v
        return scale_blocks(v, self.radius / block_norm(v).clamp(min=self.radius))
