"""A constraint per block as a ready form of `f`."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from mmb._numbers import check_positive
from mmb.problem import Upper
from mmb.trees import Tree


def constrained(
    loss: Callable[[Tree, Tree, Any], Tensor],
    excess: Callable[[Tree, Tree, Any], Tensor],
    *,
    softness: float = 0.01,
) -> Upper:
    r"""The function `f` of a problem in which every block keeps `excess` at most 0.

    $$
    f_i(x, \alpha_i, y_i) = \text{loss}_i + \alpha_i' \text{excess}_i - \tfrac{s}{2}|\alpha_i|^2,
    \qquad \alpha_i \ge 0
    $$

    Its maximum over the dual is $\text{loss}_i + |(\text{excess}_i)_+|^2 / 2s$: the smaller the softness $s$,
    the nearer to the hard constraint, and the harder to solve. The dual has one number per constraint, zero
    where it holds with room to spare; a positive dual leaves an excess of $s\,\alpha_i$.

    Give the problem `project_dual=mmb.projections.nonnegative()`, and start the duals from zeros.

    Args:
        loss: `loss(x, lower_i, batch_i) -> scalar`; `lower_i` is None without lower level.
        excess: `excess(x, lower_i, batch_i)`, a scalar or a vector: by how much each constraint of the block
            is exceeded, such as `rate - limit`.
        softness: `s`.

    Returns:
        `upper` of [`Problem`][mmb.Problem].
    """
    check_positive(softness=softness)

    def upper(x: Tree, dual: Tree, lower: Tree, batch: Any) -> Tensor:
        over = excess(x, lower, batch)
        if dual is None or dual.shape != over.shape:
            got = "None" if dual is None else str(tuple(dual.shape))
            raise ValueError(
                f"dual: expected one number per constraint of a block, shape {tuple(over.shape)}, got {got}"
            )
        return loss(x, lower, batch) + (dual * over - 0.5 * softness * dual**2).sum()

    return upper
