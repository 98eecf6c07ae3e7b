"""Variables for every positive label: found by row and task, stored for positives alone."""

import torch
from torch import Tensor, nn

from mmb.auc.labels import Labels
from mmb.auc.parts.pairs import Pairs
from mmb.auc.parts.weighted_scores import WeightedScores


class PerPositive(nn.Module):
    """Numbers for each positive entry of the label matrix: memory grows with positives, not rows x tasks.

    `value` is `[e]`, or `[e, w]` if `start` has `w` numbers, in order of rows, then tasks.
    """

    value: Tensor
    keys: Tensor
    row_starts: Tensor

    def __init__(self, labels: Labels, like: Tensor, start: float | tuple[float, ...]) -> None:
        super().__init__()
        self.num_tasks = labels.num_tasks
        rows, tasks = (labels.values == 1).nonzero(as_tuple=True)
        keys = rows * self.num_tasks + tasks
        starts = torch.searchsorted(keys, torch.arange(labels.num_rows, device=keys.device) * self.num_tasks)
        self.register_buffer("keys", keys, persistent=False)
        self.register_buffer("row_starts", starts, persistent=False)
        first = like.new_tensor(start)
        self.register_buffer("value", first.expand(*rows.shape, *first.shape).clone())

    def find(self, entries: WeightedScores, pairs: Pairs) -> Tensor:
        """The slots `[e]` of the positives of a batch, by its `rows` of the labels (checked on a CPU)."""
        if entries.rows is None:
            raise ValueError(
                "rows is missing: this objective keeps a variable per positive and looks it up by row"
            )
        dense = entries.rows.shape[1] == 1  # the same rows for all tasks
        rows = entries.rows.flatten().index_select(0, pairs.rows) if dense else pairs.own(entries.rows)
        tasks = pairs.columns if entries.tasks is None else pairs.of_task(entries.tasks)
        keys = torch.add(tasks, rows, alpha=self.num_tasks)
        if keys.device.type != "cpu" or torch.compiler.is_compiling():
            return self._search(keys)
        if dense:  # mostly all positives of a row are here, one slot after the other: no need to search
            slots = self._in_order(entries, pairs, rows)
            if torch.equal(self.keys.index_select(0, slots), keys):
                return slots
        slots = self._search(keys)
        wrong = pairs.known & (self.keys.index_select(0, slots) != keys)
        if bool(wrong.any()):
            first = int(wrong.nonzero()[0])
            row, task = int(rows[first]), int(tasks[first])
            raise ValueError(
                f"rows: row {row} is positive for task {task} in the batch but not in the labels the "
                "objective was made with; rows must index into those labels"
            )
        return slots

    def _search(self, keys: Tensor) -> Tensor:
        return torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)

    def _in_order(self, entries: WeightedScores, pairs: Pairs, rows: Tensor) -> Tensor:
        """Where the positives are if no positive of their rows is missing from the batch."""
        rank = pairs.own(entries.positive.bool().cumsum(1, dtype=torch.int32))
        starts = self.row_starts.index_select(0, rows.clamp(0, len(self.row_starts) - 1))
        return starts.add_(rank).sub_(1).clamp_(0, len(self.keys) - 1)

    def read(self, slots: Tensor) -> Tensor:
        """The values `[e, ...]` in slots that `find` gave."""
        return self.value.index_select(0, slots)

    def store(self, slots: Tensor, old: Tensor, new: Tensor, known: Tensor) -> None:
        """Replace values `[e, ...]` that were read by new ones, of any precision, unless NaN or infinite.

        Those not `known` `[e]` stay.
        """
        new = new.to(old.dtype)
        kept = known.reshape(-1, *(1,) * (new.dim() - 1)) & (new < torch.inf)
        self.value.index_copy_(0, slots, torch.where(kept, new, old))
