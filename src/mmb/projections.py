"""Euclidean projections on the sets a dual variable may live in, each for one block.

`nonnegative` is a projection itself; `box`, `ball` and `simplex` make one.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mmb._numbers import as_number, check_positive

Projection = Callable[[Tensor], Tensor]


def nonnegative(dual: Tensor) -> Tensor:
    """Project on `{a : a >= 0}`."""
    return _tensor("nonnegative", dual).clamp(min=0)


def box(low: float, high: float) -> Projection:
    """Projection on `{a : low <= a <= high}`, entry by entry."""
    least, most = as_number(low), as_number(high)
    if not least <= most:
        raise ValueError(
            f"box: expected low <= high, two numbers, got low={low!r} and high={high!r}; for bounds that "
            "differ between entries write the projection out: lambda dual: dual.clamp(low, high)"
        )
    return lambda dual: _tensor("box", dual).clamp(least, most)


def ball(radius: float) -> Projection:
    """Projection on `{a : |a| <= radius}`."""
    check_positive(radius=radius)

    def project(dual: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(_tensor("ball", dual))
        return dual * (radius / length.clamp(min=radius))

    return project


def simplex(total: float = 1.0) -> Projection:
    """Projection of a vector on `{a : a >= 0, sum(a) = total}`."""
    check_positive(total=total)

    def project(dual: Tensor) -> Tensor:
        if _tensor("simplex", dual).ndim != 1:
            raise ValueError(
                f"simplex: expected the dual of a block to be a vector, got shape {tuple(dual.shape)}"
            )
        # The projection is (a - shift)_+ with the shift at which the sum is right. With a sorted downwards,
        # (sum of the first j - total) / j rises up to that shift and falls after it.
        ordered = dual.sort(descending=True).values
        counts = torch.arange(1, dual.shape[-1] + 1, device=dual.device)
        shift = ((ordered.cumsum(-1) - total) / counts).amax(-1)
        return (dual - shift).clamp(min=0)

    return project


def _tensor(name: str, dual: Any) -> Tensor:
    if not isinstance(dual, Tensor):
        raise TypeError(
            f"{name}: expected the dual of a block to be a tensor, got {type(dual).__name__}; for a dict of "
            "tensors project each: lambda dual: {key: project(value) for key, value in dual.items()}"
        )
    return dual
