"""Lower problems of different sizes, padded to one."""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from mmb.trees import Tree


def padded(
    lower: Callable[[Tree, Tensor, Any], Tensor], curvature: float = 1.0
) -> Callable[[Tree, Tensor, Any], Tensor]:
    """The function `g` for blocks whose lower variables have different sizes.

    Lower variables are padded to the largest size, `[m, d]`, and a mask that is 1 or True where a block has
    a variable goes with its batch: the lower batch is `(mask, batch)`. What is padded stays at zero, and has
    no effect on anything else. In `f`, multiply by the mask what should not see it.

    Args:
        lower: `g(x, lower_i, batch_i)`, with zeros in place of what a block does not have.
        curvature: Of what is padded. If that of `g` is far from 1, pass about as much, so that one step size
            suits both: `mmb.auto` measures them together.

    Returns:
        `lower` of [`Problem`][mmb.Problem].

    Raises:
        ValueError: If the curvature is not positive; later, if the batch is not such a pair.
    """
    if not 0 < curvature < math.inf:
        raise ValueError(f"curvature: expected a positive number, about that of g, got {curvature!r}")

    def masked(x: Tree, values: Tensor, batch: tuple[Tensor, Any]) -> Tensor:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise ValueError(
                f"lower_batch: expected (mask, batch) with padded, got {type(batch).__name__}; put the mask, "
                "1 where a block has a variable, before what g takes"
            )
        mask, own = batch
        mask = mask.to(values.dtype)
        if mask.shape != values.shape:
            raise ValueError(
                f"mask: expected the shape of a block's lower variable, {tuple(values.shape)}, got "
                f"{tuple(mask.shape)}"
            )
        return lower(x, values * mask, own) + 0.5 * curvature * (values * (1 - mask)).square().sum()

    return masked
