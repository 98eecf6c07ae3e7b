"""Tensors that are divided among processes: how their pieces lie in the whole, on disk and in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mmb.auc import Labels, Objective
from mmb.auc.baselines.positives import PerPositive
from mmb.auc.sharded import ShardedObjective


@dataclass(frozen=True)
class Piece:
    """Some rows of a tensor whose other rows are in other processes: what a process saves.

    Attributes:
        rows: The rows of this process, `[k, ...]`.
        start: Where they are in the whole.
        total: Rows of the whole.
    """

    rows: Tensor
    start: int
    total: int


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
        total: Rows of all blocks.
        order: Brings the rows of this process in order of tasks, where they are in another: `rows[order]`.
        among_all: Which rows of one process that has all blocks they are, where those are in another order.
    """

    start: int
    total: int
    order: Tensor | None = None
    among_all: Tensor | None = None

    def piece(self, rows: Tensor) -> Piece:
        """What to save."""
        return Piece(rows if self.order is None else rows[self.order.to(rows.device)], self.start, self.total)

    def find(self, saved: Any, like: Tensor) -> Tensor:
        """The rows of this process, as many as those of `like`, in what was saved by any number of them.

        Raises:
            ValueError: If what was saved has another number of rows in all.
        """
        total = saved.total if isinstance(saved, Pieces) else len(saved)
        if total != self.total:
            raise ValueError(f"block state: expected {self.total} rows in all, got {total}")
        if not isinstance(saved, Pieces):  # by one process
            rows = slice(self.start, self.start + len(like)) if self.among_all is None else self.among_all
            found: Tensor = saved[rows]
            return found
        ordered = saved.read(self.start, self.start + len(like))
        if self.order is None:
            return ordered
        return torch.empty_like(ordered).index_copy_(0, self.order, ordered)


def places(objective: Objective, labels: Labels) -> dict[str, Place]:
    """Where each entry of an objective's state dict is in that of all processes.

    Args:
        objective: Sharded, or of all tasks.
        labels: The labels of all tasks.
    """
    start, stop = 0, labels.num_tasks
    if isinstance(objective, ShardedObjective):
        start, stop, objective = objective.shard.start, objective.shard.stop, objective.inner
    found = {name: Place(start, labels.num_tasks) for name in objective.state_dict()}
    for prefix, module in objective.named_modules():
        if isinstance(module, PerPositive):
            tasks = (labels.values == 1).nonzero()[:, 1]
            mine = ((tasks >= start) & (tasks < stop)).nonzero().squeeze(1)
            order = tasks[mine].argsort(stable=True)
            first, total = int((tasks < start).sum()), len(tasks)
            found[f"{prefix}.value"] = Place(first, total, order, mine)
    return found
