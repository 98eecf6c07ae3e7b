"""Euclidean projections on the sets a dual variable may live in, each for one block.

`nonnegative` is a projection itself; `box`, `ball` and `simplex` make one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Projection = Callable[[Tensor], Tensor]


def nonnegative(dual: Tensor) -> Tensor:
    """Project on `{a : a >= 0}`."""
    return dual.clamp(min=0)


def box(low: float, high: float) -> Projection:
    """Projection on `{a : low <= a <= high}`, entry by entry."""
    if not low <= high:
        raise ValueError(f"box: expected low <= high, got low={low} and high={high}")
    return lambda dual: dual.clamp(low, high)


def ball(radius: float) -> Projection:
    """Projection on `{a : |a| <= radius}`."""
    if not radius > 0:
        raise ValueError(f"ball: expected radius > 0, got {radius}")

    def project(dual: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(dual)
        return dual * (radius / length.clamp(min=radius))

    return project


def simplex(total: float = 1.0) -> Projection:
    """Projection of a vector on `{a : a >= 0, sum(a) = total}`."""
    if not total > 0:
        raise ValueError(f"simplex: expected total > 0, got {total}")

    def project(dual: Tensor) -> Tensor:
        if dual.ndim != 1:
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
