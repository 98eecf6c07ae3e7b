"""Tensors that are divided among processes: how their pieces lie in the whole, on disk and in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from mmb.auc import Objective
from mmb.auc.parts.per_positive import PerPositive
from mmb.auc.sharded import ShardedObjective


class Piece(Tensor):
    """Some rows of a tensor whose other rows are in other processes, as `torch.distributed.checkpoint` asks.

    Attributes:
        start: Where the rows are in the whole.
        total: Rows of the whole.
    """

    start: int
    total: int

    @classmethod
    def of(cls, rows: Tensor, start: int, total: int) -> Self:
        """Mark rows as a piece; nothing is copied."""
        piece = rows.detach().as_subclass(cls)
        piece.start, piece.total = start, total
        return piece

    def size(self, *_: Any) -> torch.Size:  # type: ignore[override]
        """The size of the whole, which is compared with what was saved."""
        return torch.Size([self.total, *self.shape[1:]])

    def __create_write_items__(self, name: str, _: Any) -> list[Any]:
        from torch.distributed.checkpoint import metadata, planner

        kind = planner.WriteItemType.SHARD
        properties = metadata.TensorProperties.create_from_tensor(self)
        return [
            planner.WriteItem(
                metadata.MetadataIndex(name, chunk.offsets),
                kind,
                tensor_data=planner.TensorWriteData(chunk, properties, self.size()),
            )
            for chunk in self.__create_chunk_list__()
        ]

    def __create_chunk_list__(self) -> list[Any]:
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

        offsets = torch.Size([self.start, *(0 for _ in self.shape[1:])])
        return [ChunkStorageMetadata(offsets, self.shape)] if len(self) else []

    def __get_tensor_shard__(self, _: Any) -> Tensor:
        rows: Tensor = self.as_subclass(Tensor)
        return rows


@dataclass(frozen=True)
class Pieces:
    """A saved tensor that was divided among processes, not read yet.

    Attributes:
        total: Its rows.
        read: `read(start, stop)` gives the rows from `start` to `stop - 1`, however they were divided.
    """

    total: int
    read: Callable[[int, int], Tensor]


@dataclass(frozen=True)
class Place:
    """Where the rows of a tensor of block state are in that of all processes.

    Attributes:
        start: The first row, with all blocks in order of tasks.
        count: How many there are.
        total: Rows of all blocks.
        order: Brings the rows of this process in order of tasks, where they are in another: `rows[order]`.
        among_all: Which rows of one process that has all blocks they are, where those are in another order.
    """

    start: int
    count: int
    total: int
    order: Tensor | None = None
    among_all: Tensor | None = None

    def piece(self, rows: Tensor) -> Piece:
        """What to save."""
        rows = rows if self.order is None else rows[self.order.to(rows.device)]
        return Piece.of(rows, self.start, self.total)

    def find(self, saved: Any) -> Tensor:
        """The rows of this process in what was saved by any number of them.

        Raises:
            ValueError: If what was saved has another number of rows in all.
        """
        total = saved.total if isinstance(saved, Pieces) else len(saved)
        if total != self.total:
            raise ValueError(f"block state: expected {self.total} rows in all, got {total}")
        stop = self.start + self.count
        if not isinstance(saved, Pieces):  # by one process
            found: Tensor = saved[self.start : stop] if self.among_all is None else saved[self.among_all]
            return found
        ordered = saved.read(self.start, stop)
        if self.order is None:
            return ordered
        return torch.empty_like(ordered).index_copy_(0, self.order, ordered)


def task_place(objective: Objective) -> Place:
    """Where the tasks of an objective, sharded or of all tasks, are among all tasks."""
    if isinstance(objective, ShardedObjective):
        return Place(objective.shard.start, len(objective.shard), objective.num_tasks)
    return Place(0, objective.num_tasks, objective.num_tasks)


def places(objective: Objective, labels: Tensor) -> dict[str, Place]:
    """Where each entry of an objective's state dict is in that of all processes.

    Args:
        objective: Sharded, or of all tasks.
        labels: The training labels of all tasks, `[n, m]`.
    """
    own = task_place(objective)
    inner = objective.inner if isinstance(objective, ShardedObjective) else objective
    found = dict.fromkeys(inner.state_dict(), own)
    for prefix, module in inner.named_modules():
        if isinstance(module, PerPositive):  # in order of rows, then tasks
            tasks = (labels == 1).nonzero()[:, 1].cpu()
            mine = ((tasks >= own.start) & (tasks < own.start + own.count)).nonzero().squeeze(1)
            order, first = tasks[mine].argsort(stable=True), int((tasks < own.start).sum())
            found[f"{prefix}.value"] = Place(first, len(mine), len(tasks), order, mine)
    return found
