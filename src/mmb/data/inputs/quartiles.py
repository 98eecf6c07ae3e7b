"""Standardizing by quartiles, and leveling off far out: what keeps heavy tails from outweighing all else."""

from typing import Any, Literal

import torch
from torch import Tensor

Spread = Literal["deviation", "quartiles"]
"""What numbers are divided by: their standard deviation or, where tails widen it, that of their quartiles."""
REACH = 4.0
"""Deviations at which squashed values level off."""
_NORMAL_WIDTH = 1.349  # of the middle half of a normal distribution, in deviations


def quartile_deviation(low: Any, high: Any) -> Any:
    """The standard deviation of normal distributions with these quartiles, numbers or arrays."""
    return (high - low) / _NORMAL_WIDTH


def squash(values: Tensor, reach: float | Tensor = REACH) -> Tensor:
    r"""$u / \sqrt{1 + (u / \text{reach})^2}$: about the same near zero, leveling off at `reach`, in order."""
    return values / torch.hypot(torch.ones_like(values), values / reach)
