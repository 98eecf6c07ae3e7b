"""Task-sampled draws: a few tasks, and rows of both classes for each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mmb._numbers import check_range, check_whole
from mmb.auc.batches import TaskBatch
from mmb.auc.labels import Labels
from mmb.auc.sampling.sampler import RowLists, Sampler
from mmb.trees import tree_map


@dataclass(frozen=True)
class TaskDraw:
    """Rows drawn for a few tasks, of both classes of each.

    Attributes:
        tasks: The sampled tasks, all different, [k].
        rows: Rows of each task, positives first, [k, r].
        labels: Each task's own label of its rows, int8 [k, r].
        weights: Importance of each task, [k]: the mean over the draw of `weights * delta` has the mean of
            delta over all usable tasks as its expectation. None when tasks are drawn uniformly (all ones).
        lower: Rows drawn independently for the same tasks, for the lower level; None if not asked for.
    """

    tasks: Tensor
    rows: Tensor
    labels: Tensor
    weights: Tensor | None = None
    lower: TaskDraw | None = None

    def batch(self, inputs: Any, labels: Tensor | None = None) -> TaskBatch:
        """Look the rows up in inputs (a tensor, or a nest of them) of all rows; labels are in the draw."""
        upper, lower = (
            None if draw is None else tree_map(lambda leaf, rows=draw.rows: leaf[rows], inputs)
            for draw in (self, self.lower)
        )
        return self.with_inputs(upper, lower)

    def with_inputs(self, inputs: Any, lower_inputs: Any = None) -> TaskBatch:
        """The batch, from the model input of these rows and of those for the lower level."""
        lower = None if self.lower is None else self.lower.with_inputs(lower_inputs)
        return TaskBatch(inputs, self.labels, self.tasks, self.rows, lower, self.weights)


class TaskSampler(Sampler[TaskDraw]):
    """Draws tasks, and for each task rows of both of its classes, as the paper's algorithms do.

    Tasks differ within a draw. A task's positives are drawn uniformly from its positives and its negatives
    uniformly from its labeled negatives; rows differ within a class, but if a class has too few rows, they
    repeat as evenly as possible. The cost of a draw does not depend on the number of rows; with the number of
    tasks it grows only by one permutation of them.

    An epoch draws as many rows as the data has, in `n / (tasks_per_step * rows_per_task)` draws, rounded up:
    the work of one pass of plain training.

    Args:
        labels: Label matrix [n, m] with 0, 1 and missing. Tasks that lack a class are never drawn.
        tasks_per_step: Tasks in each draw, `k`.
        rows_per_task: Rows for each task, `r`.
        positive_fraction: Share of a task's rows that are positives, rounded to whole rows but at least one
            row of each class.
        task_weights: How often each task is drawn relative to the others, [m], at least 0; None is uniform.
            No task is drawn more often than at every step. The draws then carry importance weights.
        independent_lower: Whether draws carry a second, independent set of rows for the lower level.
        steps_per_epoch: Draws in one epoch, if not as above.
        generator: A generator on the labels' device, or a seed for one.
    """

    def __init__(
        self,
        labels: Tensor | Labels,
        tasks_per_step: int,
        rows_per_task: int,
        positive_fraction: float = 0.5,
        *,
        task_weights: Tensor | None = None,
        independent_lower: bool = False,
        steps_per_epoch: int | None = None,
        generator: torch.Generator | int = 0,
    ) -> None:
        labels = labels if isinstance(labels, Labels) else Labels(labels)
        check_whole("tasks_per_step", tasks_per_step, 1)
        check_whole("rows_per_task", rows_per_task, 2)  # a positive and a negative
        check_range("(0, 1)", positive_fraction=positive_fraction)
        self._rates = _inclusion_rates(labels, tasks_per_step, task_weights)
        if steps_per_epoch is None:
            steps_per_epoch = math.ceil(labels.num_rows / (tasks_per_step * rows_per_task))
        super().__init__(labels.device, steps_per_epoch, generator)
        self.tasks_per_step = tasks_per_step
        self.num_positives = min(max(round(positive_fraction * rows_per_task), 1), rows_per_task - 1)
        self.num_negatives = rows_per_task - self.num_positives
        self.independent_lower = independent_lower
        self._tasks = labels.usable.nonzero().squeeze(1)
        self._positives = RowLists(labels, 1)
        self._negatives = RowLists(labels, 0)
        self._labels = torch.zeros(tasks_per_step, rows_per_task, dtype=torch.int8, device=labels.device)
        self._labels[:, : self.num_positives] = 1

    def draw(self) -> TaskDraw:
        """Make the next draw; iterating calls this, and counts."""
        tasks, weights = self._draw_tasks()
        rows = self._draw_rows(tasks, copies=2 if self.independent_lower else 1)
        lower = TaskDraw(tasks, rows[1], self._labels) if self.independent_lower else None
        return TaskDraw(tasks, rows[0], self._labels, weights, lower)

    def _draw_tasks(self) -> tuple[Tensor, Tensor | None]:
        order = torch.randperm(len(self._tasks), generator=self.generator, device=self.device)
        if self._rates is None:
            return self._tasks[order[: self.tasks_per_step]], None
        # Lay the tasks end to end in random order, each as long as its inclusion rate (together as long as
        # tasks_per_step), and take those that lie at u, u + 1, u + 2, ...: exact rates, and no task twice.
        ends = self._rates[order].cumsum(0)
        offset = torch.rand(1, dtype=ends.dtype, generator=self.generator, device=self.device)
        points = offset + torch.arange(self.tasks_per_step, device=self.device)
        chosen = order[torch.searchsorted(ends, points, right=True).clamp(max=len(order) - 1)]
        weights = self.tasks_per_step / (len(order) * self._rates[chosen])
        return self._tasks[chosen], weights.float()

    def _draw_rows(self, tasks: Tensor, copies: int) -> Tensor:
        """Independent draws of rows for the tasks: [copies, k, r]."""
        # One call for both classes and all copies: the first few of a random sample are one, too.
        counts = torch.stack([self._positives.counts[tasks], self._negatives.counts[tasks]])
        size = max(self.num_positives, self.num_negatives)
        drawn = self._positions(counts.repeat(copies, 1).flatten(), size).view(copies, 2, len(tasks), size)
        positives = self._positives.at(tasks, drawn[:, 0, :, : self.num_positives])
        negatives = self._negatives.at(tasks, drawn[:, 1, :, : self.num_negatives])
        return torch.cat([positives, negatives], dim=-1)


def _inclusion_rates(labels: Labels, tasks_per_step: int, task_weights: Tensor | None) -> Tensor | None:
    """Chance of each usable task to be drawn: proportional to its weight, at most 1, summing to `k`."""
    if task_weights is None:
        check_range(f"[1, {labels.num_usable}]", "the tasks with both classes", tasks_per_step=tasks_per_step)
        return None
    if task_weights.shape != labels.usable.shape:
        raise ValueError(
            f"task_weights: expected shape [{labels.num_tasks}], got {tuple(task_weights.shape)}"
        )
    weights = task_weights.to(labels.device, torch.float64)[labels.usable]
    if not bool((weights.isfinite() & (weights >= 0)).all()):
        raise ValueError(f"task_weights: expected finite numbers of at least 0, got {task_weights.tolist()}")
    drawable = int((weights > 0).sum())
    check_range(f"[1, {drawable}]", "the tasks that can be drawn", tasks_per_step=tasks_per_step)
    # Tasks that would be drawn more than once per step are drawn at every step; the others share the rest.
    always = torch.zeros_like(weights, dtype=torch.bool)
    while True:
        rest = weights.masked_fill(always, 0)
        scale = (tasks_per_step - always.sum()) / rest.sum().clamp(min=torch.finfo(rest.dtype).tiny)
        rates = torch.where(always, 1, scale * rest)
        if bool((rates <= 1).all()):
            return rates
        always |= rates > 1
