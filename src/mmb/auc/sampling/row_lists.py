"""The rows of one class of every task, for lookup by task and position."""

from __future__ import annotations

import torch
from torch import Tensor

from mmb.auc.labels import Labels

_CHUNK = 1 << 24  # label entries listed at a time: bounds the temporaries of a big matrix


class RowLists:
    """For every task its rows with label `value`, end to end in one tensor (compressed columns)."""

    def __init__(self, labels: Labels, value: int) -> None:
        parts = torch.split(labels.values, max(_CHUNK // labels.num_rows, 1), dim=1)
        self.rows = torch.cat([_list_rows(part, value) for part in parts])  # int32
        self.counts = labels.positives if value == 1 else labels.negatives  # [m]
        self._starts = self.counts.cumsum(0) - self.counts

    def at(self, tasks: Tensor, positions: Tensor) -> Tensor:
        """Rows at the positions [..., k, r] of the lists of the tasks [k], int64."""
        return self.rows[self._starts[tasks].unsqueeze(1) + positions].long()

    def sum_by_row(self, shares: Tensor, num_rows: int) -> Tensor:
        """For every row, the sum of the shares [m] of the tasks in whose lists it is, [num_rows]."""
        total = torch.zeros(num_rows, dtype=shares.dtype, device=shares.device)
        return total.index_add_(0, self.rows, shares.repeat_interleave(self.counts))


def _list_rows(columns: Tensor, value: int) -> Tensor:
    flat = (columns == value).T.reshape(-1).nonzero().squeeze(1)
    return flat.remainder_(len(columns)).int()
