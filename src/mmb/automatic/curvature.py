"""How curved `f` and `g` are in the variables of blocks."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mmb.hypergradients.conjugate_gradient import conjugate_gradient
from mmb.hypergradients.exact import solve_positive_definite
from mmb.oracles import Oracles
from mmb.trees import (
    Tree,
    add_scaled,
    block_dot,
    block_norm,
    ravel_blocks,
    scale_blocks,
    tree_map,
    unravel_blocks,
)

SMALL = 32  # lower variables of a block up to which whole Hessians are looked at
FLATTEST = 1e-4  # least curvature that is told from none, relative to the largest
POWER_ITERATIONS = 8
LANCZOS_ITERATIONS = 15
SOLVER_ITERATIONS = 15
FEW_ITERATIONS = 4
TINY = 1e-30


def lower_curvature(at: Oracles, generator: torch.Generator) -> tuple[float, float]:
    """Least and largest curvature of `g`, over blocks; of many lower variables, the least is not looked for.

    It is a tenth of the largest then.
    """
    if ravel_blocks(at.lower).shape[1] <= SMALL:
        hessians = at.hessian().double()
        finite = bool(torch.isfinite(hessians).all())
        eigenvalues = torch.linalg.eigvalsh(hessians) if finite else hessians.new_full((1,), math.nan)
        least, largest = float(eigenvalues.min()), float(eigenvalues.max())
    else:
        largest = power(at.hessian_product, at.lower, generator)
        least = largest / 10
    check_convex(least, largest)
    return max(least, FLATTEST * largest), largest


def check_convex(least: float, largest: float) -> None:
    """Raise if these cannot be curvatures of a strongly convex `g`."""
    if not 0 < largest < math.inf or least < -FLATTEST * largest:
        raise ValueError(
            f"lower: expected g strongly convex in the lower variable and differentiable twice, got "
            f"curvatures from {least:.3g} to {largest:.3g} at the start; add a term such as 0.5 * mu * "
            "(y ** 2).sum(), and replace what has no second derivatives there (abs, relu, norm at zero)"
        )


def least_curvature(product: Callable[[Tree], Tree], like: Tree, generator: torch.Generator) -> float:
    """Least eigenvalue over blocks of one symmetric matrix per block: close to it from above, by Lanczos."""
    before, now = None, normal(like, generator)
    now = scale_blocks(now, 1 / block_norm(now))
    diagonal: list[Tensor] = []
    off: list[Tensor] = []
    for _ in range(LANCZOS_ITERATIONS):
        found = product(now)
        along = block_dot(now, found)
        alive = block_norm(now) > 0  # an invariant space ends the search in a block
        diagonal.append(torch.where(alive, along, diagonal[0] if diagonal else along))
        found = add_scaled(found, -1, scale_blocks(now, along))
        if off:
            found = add_scaled(found, -1, scale_blocks(before, off[-1]))
        size = block_norm(found)
        goes_on = alive & (size > 1e-3 * diagonal[0].abs())
        off.append(torch.where(goes_on, size, 0.0))
        before, now = now, scale_blocks(found, torch.where(goes_on, 1 / size, 0.0))
    matrix = torch.diag_embed(torch.stack(diagonal, 1).double())
    beside = torch.diag_embed(torch.stack(off[:-1], 1).double(), 1)
    return float(torch.linalg.eigvalsh(matrix + beside + beside.mT).min())


def power(product: Callable[[Tree], Tree], like: Tree, generator: torch.Generator) -> float:
    """The largest of `largest_curvatures`; the least if one is negative."""
    found = largest_curvatures(product, like, generator)
    return float(found.min() if found.min() < 0 else found.max())


def largest_curvatures(product: Callable[[Tree], Tree], like: Tree, generator: torch.Generator) -> Tensor:
    """Largest eigenvalue of one symmetric matrix per block, given by its products: [k].

    Largest by size, so that of a matrix that is not positive may be negative.
    """
    direction = normal(like, generator)
    for _ in range(POWER_ITERATIONS):
        before = scale_blocks(direction, 1 / block_norm(direction).clamp(min=1e-30))
        direction = product(before)
    return block_norm(direction) * block_dot(before, direction).sign()


def normal(like: Tree, generator: torch.Generator) -> Tree:
    """Normal random numbers, of the shape of a tree."""
    return tree_map(
        lambda leaf: torch.randn(leaf.shape, generator=generator, dtype=torch.float64).to(leaf), like
    )


def curvature_ahead(at: Oracles, gradient: Tree, whole: bool) -> Tensor:
    """How fast gradients of `g` change on the way against them, per block: [k].

    With `whole`, Hessians are at hand, and it is close to the largest curvature that the gradient meets.
    """
    size = block_norm(gradient)
    if not whole:
        return block_norm(at.hessian_product(gradient)) / size.clamp(min=TINY)
    hessian, direction = at.hessian(), ravel_blocks(gradient).unsqueeze(2)
    for _ in range(FEW_ITERATIONS):
        before = direction / direction.norm(dim=1, keepdim=True).clamp(min=TINY)
        direction = torch.bmm(hessian, before)
    return direction.norm(dim=(1, 2))


def newton_step(at: Oracles) -> Tree:
    """What to subtract from the lower variables to be where they belong, if `g` is quadratic."""
    if ravel_blocks(at.lower).shape[1] > SMALL:
        return conjugate_gradient(at, at.lower_gradient, SOLVER_ITERATIONS)[0]
    step, _ = solve_positive_definite(at.hessian(), ravel_blocks(at.lower_gradient))
    return unravel_blocks(step, at.lower)
