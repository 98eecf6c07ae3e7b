"""Blocks divided among processes: each owns some and keeps their state; only the gradient estimate travels.

Every process draws the same blocks (same sampler, same seed) and works on those it owns, so any number of
processes takes the same path as one. (Estimators that draw at random, such as Neumann, draw per process.)
Each step makes one all-reduce of the size of `x`, whatever the number of blocks; each of `N` processes keeps
`m / N` blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from mmb.trees import Tree, tree_map


@dataclass(frozen=True)
class Shard:
    """The blocks `start` to `stop - 1` of `num_blocks`, owned by this process.

    Blocks are divided as `torch.chunk` divides rows, so that block state is a `DTensor` sharded
    over its first axis; the last processes may own fewer blocks, or none.

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
        """The blocks of this process in the group.

        Args:
            num_blocks: `m`.
            group: The process group; None is the default group, which must be initialized.

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

    def sizes(self) -> list[int]:
        """Number of blocks of each process, by rank."""
        size = -(-self.num_blocks // dist.get_world_size(self.group))
        starts = (rank * size for rank in range(dist.get_world_size(self.group)))
        return [max(0, min(size, self.num_blocks - start)) for start in starts]

    def take(self, tree: Tree) -> Tree:
        """The rows of this process in a variable of all blocks."""
        return tree_map(lambda leaf: None if leaf is None else leaf[self.start : self.stop], tree)

    def own(self, blocks: Tensor) -> Tensor:
        """The given blocks that this process owns, in their order."""
        return blocks[(blocks >= self.start) & (blocks < self.stop)]

    def mean(self, total: Tree, count: int, broken: Tensor) -> tuple[Tree, Tensor]:
        """Mean over the sampled blocks of all processes, from each process's sum: one all-reduce.

        Args:
            total: Sum over this process's sampled blocks; tensors of one dtype.
            count: Number of this process's sampled blocks.
            broken: Whether this process met something that must stop all of them, a boolean scalar.

        Returns:
            The mean, and how many processes are broken.
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


def rows_to_blocks(
    values: Tensor, rows: Sequence[int], blocks: Sequence[int], group: dist.ProcessGroup | None = None
) -> Tensor:
    """From some rows of all blocks to all rows of some blocks: one exchange, differentiable.

    `rows` and `blocks` are the numbers of rows and of blocks of each process, by rank. The values go from
    `[rows[rank], sum(blocks)]` to `[sum(rows), blocks[rank]]`.
    """
    result: Tensor = _RowsToBlocks.apply(values, rows, blocks, group)  # type: ignore[no-untyped-call]
    return result


class _RowsToBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, rows: list[int], blocks: list[int], group: Any) -> Tensor:
        ctx.rows, ctx.blocks, ctx.group, rank = rows, blocks, group, dist.get_rank(group)
        sent = torch.cat([part.reshape(-1) for part in torch.split(values, blocks, dim=1)])
        received = values.new_empty(sum(rows) * blocks[rank])
        dist.all_to_all_single(
            received, sent, [n * blocks[rank] for n in rows], [rows[rank] * m for m in blocks], group
        )
        return received.view(sum(rows), blocks[rank])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, blocks, group, rank = ctx.rows, ctx.blocks, ctx.group, dist.get_rank(ctx.group)
        sizes = [rows[rank] * m for m in blocks]
        received = gradient.new_empty(sum(sizes))
        dist.all_to_all_single(received, gradient.reshape(-1), sizes, [n * blocks[rank] for n in rows], group)
        parts = [
            part.view(rows[rank], m) for part, m in zip(torch.split(received, sizes), blocks, strict=True)
        ]
        return torch.cat(parts, dim=1), None, None, None


def sum_gradients(
    parameters: Iterable[nn.Parameter],
    numbers: Tensor,
    group: dist.ProcessGroup | None = None,
    by_block: Collection[nn.Parameter] = (),
    blocks: Tensor | None = None,
) -> Tensor:
    """Replace every gradient by its sum over processes, one all-reduce for each dtype; sum `numbers` as well.

    The parameters are the same on every process; those without a gradient count as zero. The parameters
    `by_block` have a row for each block and gradients only in the rows of `blocks` (drawn by all processes,
    each once): no other rows travel.
    """
    by_dtype: dict[torch.dtype, list[nn.Parameter]] = {}
    rows = {id(parameter): blocks for parameter in by_block}
    summed = numbers
    for parameter in parameters:
        by_dtype.setdefault(parameter.dtype, []).append(parameter)
    for dtype, some in by_dtype.items():
        for p in some:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        sent = [_rows(p.grad, rows.get(id(p))) for p in some]
        flat = torch.cat([*(part.flatten() for part in sent), numbers.to(dtype)])
        dist.all_reduce(flat, group=group)
        *parts, summed = torch.split(flat, [*(part.numel() for part in sent), len(numbers)])
        for p, part, like in zip(some, parts, sent, strict=True):
            part, where = part.view(like.shape), rows.get(id(p))
            p.grad = part if where is None or p.grad is None else p.grad.index_copy_(0, where, part)
    return summed


def _rows(values: Tensor | None, rows: Tensor | None) -> Tensor:
    assert values is not None
    return values if rows is None else values.index_select(0, rows)


def gather_rows(values: Tensor, sizes: Sequence[int], group: dist.ProcessGroup | None = None) -> Tensor:
    """The rows `[sizes[rank], ...]` of all processes, in order of rank, on every process."""
    padded = values.new_zeros(max(sizes), *values.shape[1:])
    padded[: len(values)] = values
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
