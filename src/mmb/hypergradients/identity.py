"""For lower problems whose Hessian is the identity: nothing has to be inverted or remembered."""

from torch import Tensor

from mmb.hypergradients.base import Estimate, Hypergradient, Memory, Rates, implicit_gradient
from mmb.oracles import Oracles
from mmb.trees import block_norm


class Identity(Hypergradient):
    """Takes `grad_yy g_i = I`, so `v_i = grad_y f_i`, as in compositional training.

    The residual `|grad_yy g_i v_i - v_i|` costs nothing extra and shows whether that holds.
    """

    def estimate(self, at: Oracles, memory: Memory, draw: Tensor | None, rates: Rates) -> Estimate:
        """Estimate with `v_i = grad_y f_i`; see [`Hypergradient`][mmb.hypergradients.base.Hypergradient]."""
        grad_x, slope, indefinite = implicit_gradient(at, at.upper.grad_lower)
        return Estimate(grad_x, memory, block_norm(slope), indefinite)
