"""A function at many blocks, and first and second derivatives of its sum over them.

Outside of the compiler derivatives come from autograd's tape, which costs half of what `torch.func` does in
Python, and blocks are mapped over without the trees of `torch.vmap`, which cost as much as a small function.
The compiler traces `torch.func`, so both are here, behind one interface.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch._C import _functorch  # what torch.vmap itself is made of

from mmb.trees import Tree, ravel_blocks, refill, tree_leaves, tree_map, unravel_blocks

PerBlock = Callable[..., Tensor]  # from variables to one value per block, [k]


def over_blocks(function: Callable[..., Tensor], leaves: list[Tensor | None]) -> Tensor:
    """`function` of one block's tensors at every block, [k, ...]: `torch.vmap` over the first axes.

    Args:
        function: Takes as many arguments as there are leaves.
        leaves: Tensors with a leading axis of blocks; None is passed on.
    """
    if torch.compiler.is_compiling():
        in_dims = tuple(None if leaf is None else 0 for leaf in leaves)
        found: Tensor = torch.vmap(function, in_dims, randomness="different")(*leaves)
        return found
    _load_rules()
    blocks = next(len(leaf) for leaf in leaves if leaf is not None)
    level = _functorch._vmap_increment_nesting(blocks, "different")
    try:
        own = [None if leaf is None else _functorch._add_batch_dim(leaf, 0, level) for leaf in leaves]
        return _functorch._remove_batch_dim(function(*own), level, blocks, 0)
    finally:
        _functorch._vmap_decrement_nesting()


@functools.cache
def _load_rules() -> None:
    """Let `torch.vmap` load its rules for operators, which it does when first called."""
    torch.vmap(torch.neg)(torch.zeros(1))


def gradients(function: PerBlock, variables: Tree, weights: Tensor | None) -> tuple[Tree, Tensor]:
    """Gradient of the (weighted) sum over blocks of `function(variables)`, and the values of the blocks."""
    if torch.compiler.is_compiling():

        def total(variables: Tree) -> tuple[Tensor, Tensor]:
            values = function(variables)
            return (values if weights is None else weights * values).sum(), values

        grads, values = torch.func.grad(total, has_aux=True)(variables)
        return grads, values
    with torch.enable_grad():
        inputs = tree_map(_watched, variables)
        values = function(inputs)
    ones = torch.ones_like(values) if weights is None else weights.to(values.dtype)
    found = _pull_back([values], [ones], tree_leaves(inputs), last=True)
    return refill(variables, found), values.detach()


class SecondDerivatives(Protocol):
    """`grad_y` of the sum over blocks of `g(x, y)`, linearized once: all second derivatives come from it."""

    gradient: Tree  # grad_y g_i, per block

    def products(self, v: Tree) -> tuple[Tree, Tree]:
        """The sum over blocks of `grad_xy g_i v_i`, and `grad_yy g_i v_i` per block."""

    def cross_product(self, v: Tree) -> Tree:
        """The sum over blocks of `grad_xy g_i v_i`."""

    def hessian_product(self, v: Tree) -> Tree:
        """`grad_yy g_i v_i` per block."""

    def hessian(self) -> Tensor:
        """`grad_yy g_i` as matrices [k, d, d] over the raveled `y_i`."""


def second_derivatives(function: PerBlock, x: Tree, y: Tree) -> SecondDerivatives:
    """Second derivatives of `function(x, y)`, one value per block."""
    return (_Traced if torch.compiler.is_compiling() else _Taped)(function, x, y)


class _Taped:
    def __init__(self, function: PerBlock, x: Tree, y: Tree) -> None:
        with torch.enable_grad():
            self._x, self._y = tree_map(_watched, x), tree_map(_watched, y)
            values = function(self._x, self._y)
            ones = torch.ones_like(values)
            self._slopes = _pull_back([values], [ones], tree_leaves(self._y), create_graph=True)
        self.gradient = refill(y, [slope.detach() for slope in self._slopes])

    def products(self, v: Tree) -> tuple[Tree, Tree]:
        both = (self._x, self._y)
        cross, product = refill(both, _pull_back(self._slopes, tree_leaves(v), tree_leaves(both)))
        return cross, product

    def cross_product(self, v: Tree) -> Tree:
        return refill(self._x, _pull_back(self._slopes, tree_leaves(v), tree_leaves(self._x)))

    def hessian_product(self, v: Tree) -> Tree:
        return refill(self._y, _pull_back(self._slopes, tree_leaves(v), tree_leaves(self._y)))

    def hessian(self) -> Tensor:
        flat = ravel_blocks(self.gradient)
        blocks, size = flat.shape
        rows = torch.eye(size, dtype=flat.dtype, device=flat.device)[:, None].expand(size, blocks, size)
        parts = torch.split(rows, [math.prod(slope.shape[1:]) for slope in self._slopes], dim=2)
        units = [part.reshape(size, *slope.shape) for part, slope in zip(parts, self._slopes, strict=True)]

        def product(*unit: Tensor) -> Tensor:  # of the same unit vector at all blocks
            return ravel_blocks(tuple(_pull_back(self._slopes, list(unit), tree_leaves(self._y))))

        return over_blocks(product, [*units]).transpose(0, 1)


class _Traced:
    def __init__(self, function: PerBlock, x: Tree, y: Tree) -> None:
        def slope(x: Tree, y: Tree) -> Tree:
            return torch.func.grad(lambda y: function(x, y).sum())(y)

        self._slope, self._x, self._y = slope, x, y
        self.gradient, self._both = torch.func.vjp(slope, x, y)[:2]

    def products(self, v: Tree) -> tuple[Tree, Tree]:
        found: tuple[Tree, Tree] = self._both(v)
        return found

    def cross_product(self, v: Tree) -> Tree:
        return self._both(v)[0]

    def hessian_product(self, v: Tree) -> Tree:
        return self._both(v)[1]

    def hessian(self) -> Tensor:
        flat = ravel_blocks(self.gradient)
        blocks, size = flat.shape
        rows = torch.eye(size, dtype=flat.dtype, device=flat.device)[:, None].expand(size, blocks, size)
        product = torch.vmap(lambda row: ravel_blocks(self._both(unravel_blocks(row, self._y))[1]))
        return product(rows).transpose(0, 1)


def _watched(leaf: Tensor) -> Tensor:
    """A leaf as the input of a tape."""
    return leaf.detach().requires_grad_()


def _pull_back(
    outputs: list[Tensor],
    weights: list[Tensor],
    inputs: list[Tensor],
    *,
    last: bool = False,
    create_graph: bool = False,
) -> list[Tensor]:
    """Gradients of `sum(weights * outputs)`: zero for inputs on which nothing depends."""
    known = [pair for pair in zip(outputs, weights, strict=True) if pair[0].requires_grad]
    found: Sequence[Tensor | None] = [None] * len(inputs)
    if known:
        found = torch.autograd.grad(
            [output for output, _ in known],
            inputs,
            [weight for _, weight in known],
            retain_graph=not last,
            create_graph=create_graph,
            allow_unused=True,
        )
    return [
        torch.zeros_like(leaf) if part is None else part for leaf, part in zip(inputs, found, strict=True)
    ]
