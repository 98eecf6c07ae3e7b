"""Which rows to hold out: a share of the positives of every task."""

from __future__ import annotations

import torch
from torch import Tensor


def hold_out(labels: Tensor, fraction: float, generator: torch.Generator) -> Tensor:
    """Choose rows to hold out at random, stratified by their rarest positive label.

    Rows are grouped by the task, among those they are positive for, that has the fewest positives; rows
    without a positive are one group. Of every group about `fraction` is held out, and never all of it. Rows
    are given back where training would lack a class of a task that has it.

    Args:
        labels: int8 `[n, m]` with -1 for missing.
        fraction: Share to hold out, in [0, 1).
        generator: Draws the rows.

    Returns:
        bool `[n]`: which rows are held out.
    """
    num_rows, num_tasks = labels.shape
    positive = labels == 1
    counts = torch.where(positive, positive.sum(0), num_rows + 1)
    group = torch.where(positive.any(1), counts.argmin(1), num_tasks)
    shuffled = torch.randperm(num_rows, generator=generator)
    order = shuffled[group[shuffled].argsort(stable=True)]
    sizes = group.bincount(minlength=num_tasks + 1)
    share = torch.minimum((sizes * fraction + 0.5).long(), sizes - 1)
    place = torch.arange(num_rows) - (sizes.cumsum(0) - sizes)[group[order]]  # of a row within its group
    held = torch.empty(num_rows, dtype=torch.bool)
    held[order] = place < share[group[order]]
    for has in (positive, labels == 0):
        lacking = has.any(0) & ~has[~held].any(0)
        held &= ~has[:, lacking].any(1)
    return held
