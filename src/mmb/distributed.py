"""Blocks divided among processes: each owns some, keeps their state, and only the gradient estimate travels.

Every process draws the same blocks (same sampler, same seed) and works on those it owns, so that any number
of processes takes the same path as one. (Estimators that draw at random, such as Neumann, do so by process.)
Per step there is one all-reduce of the size of `x`, whatever the number of blocks; block memory per process
is `m / N`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from mmb.trees import Tree, tree_map


@dataclass(frozen=True)
class Shard:
    """The blocks `start` to `stop - 1` of `num_blocks`, owned by this process.

    Blocks are divided as `torch.chunk` divides rows, so that block state is a `DTensor` sharded over its
    first axis; the last processes may own fewer blocks, or none.

    Args:
        num_blocks: `m`, over all processes.
        start: First block owned.
        stop: One past the last block owned.
        group: The process group; None is the default group.
    """

    num_blocks: int
    start: int
    stop: int
    group: dist.ProcessGroup | None = None

    @classmethod
    def of_this_process(cls, num_blocks: int, group: dist.ProcessGroup | None = None) -> Shard:
        """The share of this process in the group.

        Args:
            num_blocks: `m`.
            group: The process group; None is the default group, which must have been initialized.

        Raises:
            RuntimeError: If `torch.distributed` has not been initialized.
        """
        if not dist.is_initialized():
            raise RuntimeError(
                "torch.distributed is not initialized: start with torchrun and call "
                "torch.distributed.init_process_group() first, or leave shard=None for one process"
            )
        size = -(-num_blocks // dist.get_world_size(group))
        start = min(dist.get_rank(group) * size, num_blocks)
        return cls(num_blocks, start, min(start + size, num_blocks), group)

    def __len__(self) -> int:
        return self.stop - self.start

    def take(self, tree: Tree) -> Tree:
        """The rows of this process out of a variable of all blocks."""
        return tree_map(lambda leaf: None if leaf is None else leaf[self.start : self.stop], tree)

    def own(self, blocks: Tensor) -> Tensor:
        """Those of some blocks that this process owns, in their order."""
        return blocks[(blocks >= self.start) & (blocks < self.stop)]

    def mean(self, total: Tree, count: int, broken: Tensor) -> tuple[Tree, Tensor]:
        """Turn sums over the sampled blocks of each process into the mean over those of all: one all-reduce.

        Args:
            total: Sum over this process's sampled blocks; of one type.
            count: Number of this process's sampled blocks.
            broken: Whether this process met something that must stop all of them, a boolean scalar.

        Returns:
            The mean over all sampled blocks, and how many processes met something.
        """
        leaves, structure = tree_flatten(total)
        sizes = [leaf.numel() for leaf in leaves]
        counters = torch.stack(
            [torch.full_like(broken, count, dtype=leaves[0].dtype), broken.to(leaves[0].dtype)]
        )
        flat = torch.cat([*(leaf.flatten() for leaf in leaves), counters])
        dist.all_reduce(flat, group=self.group)
        *parts, (blocks, problems) = torch.split(flat, [*sizes, 2])
        means = [(part / blocks).reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
        return tree_unflatten(means, structure), problems
