"""The statement of a multi-block min-max bilevel problem."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from mmb import projections
from mmb._numbers import check_whole
from mmb.trees import Tree

Upper = Callable[[Tree, Tree, Tree, Any], Tensor]
Lower = Callable[[Tree, Tree, Any], Tensor]


@dataclass(frozen=True)
class Problem:
    r"""`m` blocks that share `x`, each with its own dual variable and lower-level problem.

    $$
    \min_x \max_{\alpha \in A^m} \frac1m \sum_i f_i(x, \alpha_i, y_i(x)),
    \qquad y_i(x) = \arg\min_y g_i(x, y)
    $$

    with $f_i$ strongly concave in $\alpha_i$ and $g_i$ strongly convex in $y$.
    Both functions are written for ONE block; the library batches them with `torch.vmap`, so they must be
    made of differentiable tensor operations without Python branches on tensor values. What differs between
    blocks (data, coefficients, the block's own number) reaches them through the batch.

    Args:
        upper: `f(x, dual_i, lower_i, batch_i) -> scalar`. `dual_i` is None in a problem without duals,
            `lower_i` is None in a problem without lower level.
        lower: `g(x, lower_i, batch_i) -> scalar`, or None for pure multi-block min-max.
        num_blocks: `m`.
        project_dual: Projection of one block's dual on the set `A`; None leaves it unconstrained.
            See `mmb.projections`.
    """

    upper: Upper
    lower: Lower | None
    num_blocks: int
    project_dual: Callable[[Tree], Tree] | None = None

    def __post_init__(self) -> None:
        if not callable(self.upper):
            raise TypeError(f"upper: expected a function f(x, dual_i, lower_i, batch_i), got {self.upper!r}")
        if self.lower is not None and not callable(self.lower):
            raise TypeError(f"lower: expected a function g(x, lower_i, batch_i) or None, got {self.lower!r}")
        check_whole("num_blocks", self.num_blocks, 1)
        if self.project_dual is not None and not callable(self.project_dual):
            raise TypeError(
                f"project_dual: expected a function of one block's dual, got {self.project_dual!r}; "
                "mmb.projections has nonnegative(), box(...), ball(...), simplex() and product(...)"
            )
        if self.project_dual in projections.MAKERS:
            name = getattr(self.project_dual, "__name__", "")
            raise TypeError(
                f"project_dual: expected a projection, got the function {name}, which makes one; call it: "
                f"mmb.projections.{name}(...)"
            )
