"""Batched derivatives of a problem at the sampled blocks of one step.

Everything is one vectorized call over blocks. Two facts keep it cheap: the gradient with respect to `x` is
needed only summed over blocks, so it is one backward pass; and one linearization of `grad_y g` gives the
lower gradient, Hessian-vector products and cross products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmb import _block_errors
from mmb.derivatives import SecondDerivatives, gradients, over_blocks, second_derivatives
from mmb.problem import Problem
from mmb.trees import (
    Tree,
    block_dot,
    block_norm,
    ravel_blocks,
    refill,
    scale_blocks,
    tree_leaves,
    unravel_blocks,
)


class UpperDerivatives(NamedTuple):
    """Value and first derivatives of `f` at the sampled blocks."""

    values: Tensor  # f_i, [k]
    grad_x: Tree  # (weighted) sum over blocks of grad_x f_i
    grad_dual: Tree  # grad_alpha f_i, per block
    grad_lower: Tree  # grad_y f_i, per block


class LowerDerivatives(NamedTuple):
    """First derivatives of `g` at the sampled blocks."""

    grad_x: Tree  # (weighted) sum over blocks of grad_x g_i
    grad_lower: Tree  # grad_y g_i, per block


class Oracles:
    """Derivatives of `f` and `g` at `(x, dual_i, lower_i)` for the sampled blocks and their batches.

    Args:
        problem: The problem.
        x: The shared variable.
        dual: Duals of the `k` sampled blocks (leading axis `k`), or None.
        lower: Lower variables of the sampled blocks, or None.
        upper_batch: Batches of `f`, leading axis `k`.
        lower_batch: Batches of `g`, leading axis `k`.
        weights: Positive weight of each block in sums over blocks, [k]; None is one each.
        own_x: Whether each block has its own `x`, leading axis `k`; there is no sum over blocks then.
    """

    def __init__(
        self,
        problem: Problem,
        x: Tree,
        dual: Tree,
        lower: Tree,
        upper_batch: Any,
        lower_batch: Any,
        weights: Tensor | None = None,
        own_x: bool = False,
    ) -> None:
        self.problem = problem
        self.x, self.dual, self.lower = x, dual, lower
        self.upper_batch, self.lower_batch = upper_batch, lower_batch
        self.weights, self.own_x = weights, own_x
        # Each of these is computed when first asked for.
        self._upper: UpperDerivatives | None = None
        self._first: LowerDerivatives | None = None
        self._second: SecondDerivatives | None = None
        self._hessian: Tensor | None = None

    @property
    def upper(self) -> UpperDerivatives:
        """Derivatives of `f` at the current lower variables."""
        if self._upper is None:
            self._upper = self.upper_at(self.lower)
        return self._upper

    def upper_at(self, lower: Tree) -> UpperDerivatives:
        """Derivatives of `f` at other lower variables: one backward pass for all of them."""
        variables = {"x": self.x, "dual": self.dual, "lower": lower}
        present = {name: value for name, value in variables.items() if value is not None}

        def values(present: dict[str, Tree]) -> Tensor:
            of_block = (present.get("dual"), present.get("lower"), self.upper_batch)
            return self._per_block(self.problem.upper, "upper", present["x"], *of_block)

        grads, found = gradients(values, present, self.weights)
        return UpperDerivatives(
            found,
            grads["x"],
            self._unweighted(grads.get("dual")),
            self._unweighted(grads.get("lower")),
        )

    def dual_slope_at(self, dual: Tree) -> Tree:
        """`grad_alpha f_i` at other duals, per block, and nothing else."""
        slope, _ = gradients(
            lambda dual: self._per_block(
                self.problem.upper, "upper", self.x, dual, self.lower, self.upper_batch
            ),
            dual,
            None,
        )
        return slope

    def lower_at(self, lower: Tree) -> LowerDerivatives:
        """First derivatives of `g` at the given lower variables, without building second derivatives."""
        (grad_x, grad_lower), _ = gradients(
            lambda variables: self._lower_values(*variables), (self.x, lower), self.weights
        )
        return LowerDerivatives(grad_x, self._unweighted(grad_lower))

    @property
    def lower_first(self) -> LowerDerivatives:
        """First derivatives of `g` at the current lower variables."""
        if self._first is None:
            self._first = self.lower_at(self.lower)
        return self._first

    @property
    def lower_gradient(self) -> Tree:
        """`grad_y g_i` at the current lower variables, per block, from whatever was computed already."""
        return self._second.gradient if self._second is not None else self.lower_first.grad_lower

    def products(self, v: Tree) -> tuple[Tree, Tree]:
        """Cross products and Hessian-vector products of `g` in one backward pass, less if Hessians are known.

        Args:
            v: One vector per block, shaped as the lower variables.

        Returns:
            The (weighted) sum over blocks of `grad_xy g_i v_i`, and `grad_yy g_i v_i` per block.
        """
        weighted = v if self.weights is None else scale_blocks(v, self.weights)
        if self._hessian is not None:
            product = torch.bmm(self._hessian, ravel_blocks(v).unsqueeze(2)).squeeze(2)
            return self._linearized.cross_product(weighted), unravel_blocks(product, v)
        cross, hessian_product = self._linearized.products(weighted)
        return cross, self._unweighted(hessian_product)

    def hessian_product(self, v: Tree) -> Tree:
        """`grad_yy g_i v_i` per block, without touching `x`: for inner loops."""
        return self._linearized.hessian_product(v)

    def hessian(self) -> Tensor:
        """`grad_yy g_i` as matrices [k, d, d] over the raveled lower variables."""
        if self._hessian is None:
            self._hessian = self._linearized.hessian()
        return self._hessian

    def negative_curvature(self, v: Tree, hessian_product: Tree) -> Tensor:
        """Whether `v_i' Hess_i v_i < 0` beyond rounding, per block, or all vanish: no second derivatives."""
        curvature, length, size = block_dot(v, hessian_product), block_norm(v), block_norm(hessian_product)
        rounding = length * size * (10 * torch.finfo(curvature.dtype).eps)
        flat = ((size == 0) & (length > 0)).all()
        return (curvature < -rounding) | flat

    def with_lower_batch(self, lower_batch: Any) -> Oracles:
        """The same point with another batch for `g`."""
        point = (self.x, self.dual, self.lower)
        return Oracles(
            self.problem, *point, self.upper_batch, lower_batch, weights=self.weights, own_x=self.own_x
        )

    @property
    def _linearized(self) -> SecondDerivatives:
        if self._second is None:
            self._second = second_derivatives(self._lower_values, self.x, self.lower)
        return self._second

    def _lower_values(self, x: Tree, lower: Tree) -> Tensor:
        assert self.problem.lower is not None
        return self._per_block(self.problem.lower, "lower", x, lower, self.lower_batch)

    def _per_block(self, function: Callable[..., Tensor], name: str, x: Tree, *of_block: Any) -> Tensor:
        """Evaluate a one-block function at all sampled blocks: [k]."""
        arguments = (x, *of_block) if self.own_x else of_block

        def one_block(*leaves: Tensor) -> Tensor:
            own = refill(arguments, leaves)
            try:
                found = function(*own) if self.own_x else function(x, *own)
            except (TypeError, ValueError, KeyError, IndexError, AttributeError, RuntimeError) as error:
                if not torch.compiler.is_compiling():
                    error.add_note(_block_errors.note(name, error, own))
                raise
            return _scalar(name, found)

        return over_blocks(one_block, tree_leaves(arguments))

    def _unweighted(self, tree: Tree) -> Tree:
        """Per-block derivatives of the weighted sum, with the weight taken out again."""
        return tree if tree is None or self.weights is None else scale_blocks(tree, 1 / self.weights)


def _scalar(name: str, value: Any) -> Tensor:
    """What a one-block function gave, if it is a scalar."""
    if not isinstance(value, Tensor) or value.ndim != 0 or not value.is_floating_point():
        found = isinstance(value, Tensor)
        got = f"shape {tuple(value.shape)} of {value.dtype}" if found else type(value).__name__
        raise ValueError(
            f"{name}: expected a scalar (a floating-point tensor of shape ()) for one block, got {got}; "
            "reduce it with .sum() or .mean()"
        )
    return value
