"""Lower problems of different sizes, padded to one."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from mmb.trees import Tree


def padded(lower: Callable[[Tree, Tensor, Any], Tensor]) -> Callable[[Tree, Tensor, Any], Tensor]:
    """The function `g` for blocks whose lower variables have different sizes.

    Lower variables are padded to the largest size, `[m, d]`, and a mask that is 1 where a block has a
    variable goes with its batch: the lower batch is `(mask, batch)`. What is padded stays at zero, with
    curvature 1, and has no effect on anything else. In `f`, multiply by the mask what should not see it.

    Args:
        lower: `g(x, lower_i, batch_i)`, with zeros in place of what a block does not have.

    Returns:
        `lower` of [`Problem`][mmb.Problem].
    """

    def masked(x: Tree, values: Tensor, batch: tuple[Tensor, Any]) -> Tensor:
        mask, own = batch
        if mask.shape != values.shape:
            raise ValueError(
                f"mask: expected the shape of a block's lower variable, {tuple(values.shape)}, got "
                f"{tuple(mask.shape)}"
            )
        return lower(x, values * mask, own) + 0.5 * (values * (1 - mask)).square().sum()

    return masked
