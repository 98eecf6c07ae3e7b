"""Oracles whose every answer has been reduced in variance."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from torch import Tensor

from mmb.oracles import LowerDerivatives, Oracles, UpperDerivatives
from mmb.trees import Tree
from mmb.variance_reduction.base import Memory, VarianceReduction
from mmb.variance_reduction.calls import CALLS

if TYPE_CHECKING:
    from mmb.hypergradients import Hypergradient


class ReducedOracles(Oracles):
    """Derivatives at the sampled blocks, reduced: one per block where plain oracles give a sum over blocks.

    Hessians, and Hessian-vector products of inner loops, are those of the batch.

    Args:
        raw: The derivatives of the batches, with a copy of `x` per block.
        reduction: How they are reduced.
        past: What `VarianceReduction.gather` gave for the sampled blocks.
        hypergradient: The estimator that asks, or None without lower level.
        draw: What it drew for this step.
    """

    def __init__(
        self,
        raw: Oracles,
        reduction: VarianceReduction,
        past: Memory,
        hypergradient: Hypergradient | None = None,
        draw: Tensor | None = None,
    ) -> None:
        super().__init__(
            raw.problem, raw.x, raw.dual, raw.lower, raw.upper_batch, raw.lower_batch, own_x=True
        )
        self._raw, self._reduction, self._past = raw, reduction, past
        self._hypergradient, self._draw = hypergradient, draw
        self._before = reduction.before(raw, past)
        self._gradient: Tree = None
        self._blocks: Memory = {}  # what is to be remembered
        self._batches: Memory = {}

    @property
    def upper(self) -> UpperDerivatives:
        """Reduced derivatives of `f`; its values are those of the batch."""
        if self._upper is None:
            self._upper = self._as_upper(self._reduced("upper"))
        return self._upper

    def upper_at(self, lower: Tree) -> UpperDerivatives:
        """Reduced derivatives of `f` at other lower variables."""
        return self._as_upper(self._reduced("upper_other", lower))

    @property
    def lower_first(self) -> LowerDerivatives:
        """Reduced first derivatives of `g`."""
        if self._first is None:
            self._first = LowerDerivatives(**self._reduced("lower"))
        return self._first

    def lower_at(self, lower: Tree) -> LowerDerivatives:
        """Reduced first derivatives of `g` at other lower variables."""
        return LowerDerivatives(**self._reduced("lower_other", lower))

    @property
    def lower_gradient(self) -> Tree:
        """Reduced `grad_y g_i`."""
        if self._first is not None:
            return self._first.grad_lower
        if self._gradient is None:
            self._gradient = self._reduced("lower_gradient")
        return self._gradient

    def products(self, v: Tree) -> tuple[Tree, Tree]:
        """Reduced cross products, one per block, and Hessian-vector products."""
        found = self._reduced("products", v)
        return found["cross"], found["product"]

    def hessian_product(self, v: Tree) -> Tree:
        """The batch's own product: for inner loops."""
        return self._raw.hessian_product(v)

    def hessian(self) -> Tensor:
        """The batch's own Hessians: reduced ones need not be positive definite."""
        return self._raw.hessian()

    def negative_curvature(self, v: Tree, hessian_product: Tree) -> Tensor:
        """Whether the batch shows negative curvature; a reduced product could without any."""
        return super().negative_curvature(v, self._raw.hessian_product(v))

    def _reduced(self, kind: str, argument: Tree = None) -> Tree:
        past = self._past
        call = f"{kind}_2" if kind in self._blocks else kind
        if call not in past["blocks"]:
            raise ValueError(
                f"hypergradient: expected it to ask for what its `calls` name, got {call!r}; add it there"
            )
        block = past["blocks"][call]
        now = CALLS[kind](self._raw, argument)
        before = None if self._before is None else self._at_last_visit(kind, block["argument"])
        found, self._blocks[call], self._batches[call] = self._reduction.reduce(
            now, before, argument, block, past["batches"].get(call), past["first"]
        )
        return found

    def _at_last_visit(self, kind: str, argument: Tree) -> Tree:
        """The same derivative at the earlier point, with the argument of then.

        A vector that an estimator found on the batch is found again, on this batch: the one of then would
        carry the noise of another batch, and nothing would cancel.
        """
        before = self._before
        assert before is not None
        if kind == "products" and self._hypergradient is not None:
            at = copy.copy(before)
            at._upper = self._as_upper(self._past["blocks"]["upper"]["value"])
            vector = self._hypergradient.vector(at, self._draw)
            if vector is not None:
                before, argument = at, vector
        return CALLS[kind](before, argument)

    def finish(self, hypergradient: Tree) -> tuple[Tree, Memory]:
        """The step's `Delta` from hypergradients per block, and all that is to be remembered."""
        delta, new = self._reduction.finish(self._raw, hypergradient, self._past)
        new["blocks"] |= self._blocks
        return delta, {**new, "batches": self._batches}

    def _as_upper(self, grads: dict[str, Tree]) -> UpperDerivatives:
        values = self._raw.upper.values
        return UpperDerivatives(values, grads["x"], grads.get("dual"), grads.get("lower"))
