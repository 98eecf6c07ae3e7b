"""Variables for every positive label: found by row and task, stored for positives alone."""

import torch
from torch import Tensor, nn

from mmb.auc.labels import Labels
from mmb.auc.parts.pairs import Pairs
from mmb.auc.parts.weighted_scores import WeightedScores


class PerPositive(nn.Module):
    """Numbers for each positive entry of the label matrix: memory grows with positives, not rows x tasks.

    `value` is `[e]`, or `[e, w]` if `start` has `w` numbers.
    """

    value: Tensor
    keys: Tensor

    def __init__(self, labels: Labels, like: Tensor, start: float | tuple[float, ...]) -> None:
        super().__init__()
        self.num_tasks = labels.num_tasks
        rows, tasks = (labels.values == 1).nonzero(as_tuple=True)  # in order of rows, then tasks
        self.register_buffer("keys", rows * self.num_tasks + tasks, persistent=False)
        first = like.new_tensor(start)
        self.register_buffer("value", first.expand(*rows.shape, *first.shape).clone())

    def find(self, entries: WeightedScores, pairs: Pairs) -> Tensor:
        """The slots `[e]` of the positives of a batch, by its `rows` of the labels (checked on a CPU)."""
        if entries.rows is None:
            raise ValueError(
                "rows is missing: this objective keeps a variable per positive and looks it up by row"
            )
        rows = entries.rows.expand(entries.logits.shape)[pairs.rows, pairs.columns]
        tasks = pairs.columns if entries.tasks is None else entries.tasks[pairs.columns]
        keys = rows * self.num_tasks + tasks
        slots = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        if keys.device.type == "cpu" and not torch.compiler.is_compiling():
            wrong = pairs.known & (self.keys[slots] != keys)
            if bool(wrong.any()):
                first = int(wrong.nonzero()[0])
                row, task = int(rows[first]), int(tasks[first])
                raise ValueError(
                    f"rows: row {row} is positive for task {task} in the batch but not in the labels the "
                    "objective was made with; rows must index into those labels"
                )
        return slots

    def store(self, slots: Tensor, values: Tensor, known: Tensor) -> None:
        """Keep new values `[e, ...]`, of any precision, in slots that `find` gave, unless NaN or infinite.

        Those not `known` `[e]` stay.
        """
        new = values.to(self.value.dtype)
        kept = known.reshape(-1, *(1,) * (new.dim() - 1)) & (new < torch.inf)
        self.value[slots] = torch.where(kept, new, self.value[slots])
