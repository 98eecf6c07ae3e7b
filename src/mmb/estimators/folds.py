"""Which rows each network goes without: folds with a share of the positives of every task."""

from __future__ import annotations

import torch
from torch import Tensor

_ALONE = 4  # a single fold has one share out of this many


def assign_folds(labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Deal the rows out to folds at random, stratified by their rarest positive label.

    Rows are grouped by the task, among those they are positive for, that has the fewest positives; rows
    without a positive are one group. Every group is dealt out evenly. A row belongs to no fold if the others
    would lack a class of a task without it; its number is then -1. A single fold has a quarter of the rows.
    """
    num_rows, num_tasks = labels.shape
    positive, negative = labels == 1, labels == 0
    counts = torch.where(positive, positive.sum(0), num_rows + 1)
    group = torch.where(positive.any(1), counts.argmin(1), num_tasks)
    shuffled = torch.randperm(num_rows, generator=generator)
    order = shuffled[group[shuffled].argsort(stable=True)]
    fold = torch.empty(num_rows, dtype=torch.int64)
    fold[order] = torch.arange(num_rows) % (count if count > 1 else _ALONE)  # groups lie one after the other
    dealt = fold.clone()
    fold[dealt >= count] = -1
    for number in range(count):
        rest = dealt != number
        for has in (positive, negative):
            lacking = has.any(0) & ~has[rest].any(0)
            fold[has[:, lacking].any(1)] = -1
    return fold


def unseen_logits(logits: Tensor, fold: Tensor) -> Tensor:
    """Logits `[n, ...]` of each row by the network, of `[K, n, ...]`, that its fold `[n]` was kept from.

    Rows in no fold (-1) get the mean of all networks.
    """
    found = logits.mean(0)
    there = fold >= 0
    found[there] = logits[fold[there], there]
    return found
