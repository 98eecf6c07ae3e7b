"""The derivatives that a step asks for, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mmb.oracles import Oracles
from mmb.trees import Tree, tree_map


def _upper(at: Oracles, lower: Tree) -> Tree:
    found = at.upper if lower is at.lower else at.upper_at(lower)
    grads = {"x": found.grad_x, "dual": found.grad_dual, "lower": found.grad_lower}
    return {name: grad for name, grad in grads.items() if grad is not None}


def _products(at: Oracles, v: Tree) -> Tree:
    cross, product = at.products(v)
    return {"cross": cross, "product": product}


CALLS: dict[str, Callable[[Oracles, Tree], Tree]] = {
    "upper": lambda at, _: _upper(at, at.lower),
    "upper_other": _upper,  # at other lower variables than the block's own
    "lower": lambda at, _: at.lower_first._asdict(),
    "lower_other": lambda at, lower: at.lower_at(lower)._asdict(),
    "lower_gradient": lambda at, _: at.lower_gradient,
    "products": _products,
}
"""From a point and, where there is one, an argument shaped as the lower variables."""

WITH_ARGUMENT = ("upper_other", "lower_other", "products")


def kind(call: str) -> str:
    """Of which kind a call is: the second one of a step has `_2` after its name."""
    return call.removesuffix("_2")


def zeros(call: str, point: dict[str, Tree]) -> Tree:
    """Zeros shaped as what a call gives, per block; in the point, `x` has an axis of blocks."""
    lower: Any = point.get("lower")
    like = {
        "upper": point,
        "upper_other": point,
        "lower_gradient": lower,
        "products": {"cross": point["x"], "product": lower},
    }.get(kind(call), {"grad_x": point["x"], "grad_lower": lower})
    return tree_map(torch.zeros_like, like)
