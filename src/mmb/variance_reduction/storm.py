"""Recursive momentum: each derivative is corrected by what the same batch says at the last point."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mmb._numbers import check_range
from mmb.oracles import Oracles
from mmb.trees import Tree, tree_map, where_blocks
from mmb.variance_reduction.base import Memory, VarianceReduction
from mmb.variance_reduction.calls import WITH_ARGUMENT, kind


class Storm(VarianceReduction):
    r"""STORM, block by block: $d_i \leftarrow \nabla_i(now) + (1-\beta)(d_i - \nabla_i(before))$.

    Both gradients are of the same batch; "before" is the point of the block's last visit, with the `x` of
    then. An estimator that solves on the batch solves there too. It costs twice the oracle calls. Memory
    per block is four times `x`, twice its dual and, with Algorithm 2, five times its lower variables.

    Args:
        beta: Weight of the newest derivative alone, in (0, 1]: 1 turns the reduction off.
    """

    def __init__(self, beta: float = 0.1) -> None:
        check_range("(0, 1]", beta=beta)
        self.beta = beta

    def block_memory(self, calls: dict[str, Tree], point: dict[str, Tree]) -> Memory:
        """The point, and of each derivative its reduced value and its argument."""
        return {"point": tree_map(torch.clone, point)} | {
            call: {
                "value": value,
                "argument": tree_map(torch.zeros_like, point["lower"]) if kind(call) in WITH_ARGUMENT else {},
            }
            for call, value in calls.items()
        }

    def before(self, raw: Oracles, past: Memory) -> Oracles:
        """The batches at the point of each block's last visit."""
        point = past["blocks"]["point"]
        return Oracles(
            raw.problem,
            point["x"],
            point.get("dual"),
            point.get("lower"),
            raw.upper_batch,
            raw.lower_batch,
            own_x=True,
        )

    def finish(self, raw: Oracles, hypergradient: Tree, past: Memory) -> tuple[Tree, Memory]:
        """See the base class; the point is remembered too."""
        delta, new = super().finish(raw, hypergradient, past)
        point = {"x": raw.x, "dual": raw.dual, "lower": raw.lower}
        new["blocks"]["point"] = {name: part for name, part in point.items() if part is not None}
        return delta, new

    def reduce(
        self, now: Tree, before: Tree, argument: Tree, block: Any, batch: Any, first: Tensor
    ) -> tuple[Tree, Any, Any]:
        """See the base class."""
        keep = 1 - self.beta
        moved = tree_map(lambda new, old, then: new + keep * (old - then), now, block["value"], before)
        value = where_blocks(first, now, moved)
        return value, {"value": value, "argument": {} if argument is None else argument}, None
