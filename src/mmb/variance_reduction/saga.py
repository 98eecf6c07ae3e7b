"""A memory of every batch's derivatives, for data that are cut into fixed batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mmb._numbers import check_whole
from mmb.trees import Tree, scale_blocks, tree_leaves, tree_map, where_blocks
from mmb.variance_reduction.base import Memory, VarianceReduction


class Saga(VarianceReduction):
    r"""SAGA, block by block.

    $$
    d_i = \nabla_{ij}(now) - \nabla_{ij}(then) + \operatorname{mean}_j \nabla_{ij}(then)
    $$

    "Then" is when batch `j` of block `i` was last seen; the mean is over the batches seen so far, and a batch
    that was never seen counts as it is. With Algorithm 2 and one block this is SABA, except for its start.
    Memory per batch of `f` is one `x`, dual and lower variable; with Algorithm 2, per batch of `g` one `x`
    and two lower variables; per block three times `x`, a dual and three lower variables.

    Noise fades as derivatives settle, so lower variables need no decay: let only the step size of `x` fall.
    Remembered derivatives answer late, so step sizes of lower variables and of the estimator above one over
    the largest curvature of a batch of `g`, which may work without this, diverge here: keep to half of that.

    Args:
        upper_batches: Into how many batches the data of `f` are cut in every block.
        lower_batches: Likewise of `g`. `samples` of [`Solver.step`][mmb.Solver.step] says which they are,
            best in an order that [`BatchOrder`][mmb.BatchOrder] gives.
    """

    def __init__(self, upper_batches: int = 1, lower_batches: int = 1) -> None:
        check_whole("upper_batches", upper_batches, 1)
        check_whole("lower_batches", lower_batches, 1)
        self.upper_batches, self.lower_batches = upper_batches, lower_batches

    def batches(self, call: str) -> int:
        """See the base class."""
        return self.upper_batches if call.startswith("upper") else self.lower_batches

    def block_memory(self, calls: dict[str, Tree], point: dict[str, Tree]) -> Memory:
        """Of each derivative, the mean over batches and how many were seen."""
        return {call: {"mean": value, "seen": _column(value)} for call, value in calls.items()}

    def batch_memory(self, call: Tree) -> Tree:
        """The derivative when the batch was last seen, and whether it ever was."""
        return {"value": call, "seen": _column(call)}

    def reduce(
        self, now: Tree, before: Tree, argument: Tree, block: Any, batch: Any, first: Tensor
    ) -> tuple[Tree, Any, Any]:
        """See the base class."""
        known = batch["seen"] > 0
        change = tree_map(torch.sub, now, batch["value"])
        found = where_blocks(known, tree_map(torch.add, change, block["mean"]), now)
        seen = torch.where(known, block["seen"], block["seen"] + 1)
        moved = where_blocks(known, change, tree_map(torch.sub, now, block["mean"]))
        mean = tree_map(torch.add, block["mean"], scale_blocks(moved, 1 / seen))
        return found, {"mean": mean, "seen": seen}, {"value": now, "seen": torch.ones_like(seen)}


def _column(like: Tree) -> Tensor:
    """One zero per block."""
    leaf = tree_leaves(like)[0]
    return leaf.new_zeros(len(leaf))
