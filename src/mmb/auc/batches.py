"""The two kinds of batches: rows drawn for each of some tasks, or rows with all their labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor


@dataclass(frozen=True)
class TaskBatch:
    """Task-sampled: `k` tasks, and `r` rows drawn for each of them, as in the paper.

    Attributes:
        inputs: What the model takes: tensors (or a nest of tuples, lists and dicts of tensors) with leading
            axes `[k, r]`, or any object with a method `flatten_tasks()` that returns the model's input
            for the `k * r` rows in task-major order.
        labels: `[k, r]`: each row's label of the task it was drawn for, with gaps.
        tasks: int64 `[k]`: the tasks, each at most once.
        rows: int64 `[k, r]`: index of each row in the data; needed only by objectives that keep a variable
            per positive.
        lower: An independent batch of the same tasks for the lower level (compositional training).
        weights: `[k]`: importance of each task, if some are drawn more often; ones if absent.
    """

    inputs: Any
    labels: Tensor
    tasks: Tensor
    rows: Tensor | None = None
    lower: TaskBatch | None = None
    weights: Tensor | None = None


@dataclass(frozen=True)
class DenseBatch:
    """Dense: `n` rows and every label they have.

    Attributes:
        inputs: What the model takes for the `n` rows.
        labels: `[n, m]` with gaps.
        weights: `[n, m]` or `[n]`: importance of each label, one over how much likelier than under
            uniform sampling it was drawn; ones if absent.
        rows: int64 `[n]`: index of each row in the data; needed only by objectives that keep a variable per
            positive.
    """

    inputs: Any
    labels: Tensor
    weights: Tensor | None = None
    rows: Tensor | None = None

    tasks: ClassVar[None] = None  # all, in order
    lower: ClassVar[None] = None


Batch = TaskBatch | DenseBatch
