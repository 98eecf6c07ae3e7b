"""The memory that variance reduction needs, before it is allocated."""

from __future__ import annotations

from torch import Tensor

from mmb import memory
from mmb.memory import NoRoomError, readable_bytes
from mmb.trees import Tree, tree_leaves, tree_map
from mmb.variance_reduction.base import VarianceReduction


def bytes_per_block(
    reduction: VarianceReduction, calls: tuple[str, ...], x: Tree, dual: Tree, lower: Tree
) -> int:
    """What is remembered of one block and its batches; nothing is allocated."""
    one = [tree_map(_without_storage, tree) for tree in (x, tree_map(_first, dual), tree_map(_first, lower))]
    made = reduction.init(calls, 1, *one)
    return sum(leaf.nbytes for leaf in tree_leaves((made["blocks"], made["batches"])))


def check_room(
    reduction: VarianceReduction, calls: tuple[str, ...], blocks: int, x: Tree, dual: Tree, lower: Tree
) -> None:
    """Raise NoRoomError if what is remembered of all blocks does not fit."""
    device = tree_leaves(x)[0].device
    own, free = bytes_per_block(reduction, calls, x, dual, lower), memory.free_bytes(device)
    if free is not None and blocks * own > free:
        raise NoRoomError(
            f"variance_reduction: {type(reduction).__name__} remembers {readable_bytes(own)} of every block, "
            f"{readable_bytes(blocks * own)} of all {blocks:,}, and {readable_bytes(free)} are free on "
            f"{device}; cut the data into fewer batches, take a smaller x, or None for variance_reduction"
        )


def _first(leaf: Tensor | None) -> Tensor | None:
    return None if leaf is None else leaf[:1]


def _without_storage(leaf: Tensor | None) -> Tensor | None:
    return None if leaf is None else leaf.to("meta")
