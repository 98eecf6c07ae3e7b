"""Euclidean projections on the sets a dual variable may live in, each for one block.

Every function here makes a projection: `project_dual=nonnegative()`, `project_dual=simplex()`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mmb._numbers import as_number, check_positive

Projection = Callable[[Tensor], Tensor]


def nonnegative() -> Projection:
    """Projection on `{a : a >= 0}`."""
    return lambda dual: _tensor("nonnegative", dual).clamp(min=0)


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


def product(**projections: Projection | None) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    """Projection of a dict of tensors on a product of sets.

    Args:
        **projections: The projection of each entry by its name, or None for one that is not constrained:
            `product(weights=simplex(), price=nonnegative(), shift=None)`.
    """
    for name, project in projections.items():
        if project is not None and (not callable(project) or project in MAKERS):
            raise TypeError(
                f"product: expected a projection or None for {name!r}, such as nonnegative(), got {project!r}"
            )

    def project_all(dual: dict[str, Tensor]) -> dict[str, Tensor]:
        if not isinstance(dual, dict) or dual.keys() != projections.keys():
            got = sorted(dual) if isinstance(dual, dict) else type(dual).__name__
            raise ValueError(f"product: expected a dual with names {sorted(projections)}, got {got}")
        parts = ((name, part, projections[name]) for name, part in dual.items())
        return {name: part if project is None else project(part) for name, part, project in parts}

    return project_all


MAKERS: tuple[Any, ...] = (nonnegative, box, ball, simplex, product)
"""Functions that make projections; they are not projections themselves."""


def _tensor(name: str, dual: Any) -> Tensor:
    if not isinstance(dual, Tensor):
        raise TypeError(
            f"{name}: expected the dual of a block to be a tensor, got {type(dual).__name__}; for a dict of "
            f"tensors name the set of each: product(first={name}(...), second=None)"
        )
    return dual
