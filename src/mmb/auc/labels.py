"""The label matrix of a multi-task problem: 0, 1 and gaps, checked once when the data is built."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from mmb._names import first_few
from mmb.label_values import as_labels


class Labels:
    """A checked label matrix and its counts, for objectives and samplers.

    Values and tasks without a class are checked here once, so that no training step has to: it never waits
    for the device to learn whether its labels are sound.

    Args:
        matrix: `[n, m]`, or `[n]` for one task, with at least one task that has both classes. Values 0, 1 and
            missing: NaN in floating point, -1 in signed integers; bool and uint8 have no gaps. A warning
            lists the tasks that are left out.

    Attributes:
        values: int8 `[n, m]` with 0, 1 and `MISSING` (-1).
        positives: Number of rows labeled 1, per task, `[m]`.
        negatives: Number of rows labeled 0, per task, `[m]`.
        positive_rate: `positives / n`: the share of ALL rows that are labeled positive, float64 `[m]`.
        negative_rate: `negatives / n`, float64 `[m]`.
        usable: bool `[m]`: tasks with at least one positive and one negative. The others are left out of
            training: weight zero, never sampled.
        num_rows: `n`.
        num_tasks: `m`.
        num_usable: Number of usable tasks.
    """

    def __init__(self, matrix: Tensor) -> None:
        self.values = as_labels(matrix)
        self._count((self.values == 1).sum(0), (self.values == 0).sum(0), len(self.values))
        if not bool((self.positives + self.negatives).any()):
            raise ValueError("labels: all are missing, but at least one task needs a positive and a negative")
        if self.num_usable == 0:
            raise ValueError(
                "labels: no task has both a positive and a negative, so no ranking can be learned; "
                f"positives per task {first_few(self.positives.tolist(), 20)}, "
                f"negatives per task {first_few(self.negatives.tolist(), 20)}"
            )
        if self.num_usable < self.num_tasks:
            left_out = (~self.usable).nonzero().squeeze(1).tolist()
            warnings.warn(
                f"{len(left_out)} of {self.num_tasks} tasks have no positive or no negative "
                f"and are left out: {first_few(left_out, 20)}",
                UserWarning,
                stacklevel=2,
            )

    @classmethod
    def of_counts(cls, positives: Tensor, negatives: Tensor, num_rows: int) -> Labels:
        """Labels of which only the counts per task `[m]` are known; nothing is checked."""
        labels = cls.__new__(cls)
        labels.values = torch.empty(0, len(positives), dtype=torch.int8, device=positives.device)
        labels._count(positives, negatives, num_rows)
        return labels

    def _count(self, positives: Tensor, negatives: Tensor, num_rows: int) -> None:
        self.positives, self.negatives = positives, negatives
        self.num_rows, self.num_tasks = num_rows, len(positives)
        self.positive_rate = positives.double() / num_rows
        self.negative_rate = negatives.double() / num_rows
        self.usable = (positives > 0) & (negatives > 0)
        self.num_usable = int(self.usable.sum())
        self._whole: Labels | None = None  # the labels of which these are columns from `_start` on
        self._start = 0

    def columns(self, start: int, stop: int) -> Labels:
        """The tasks `start` to `stop - 1`, with `num_usable` and task weights of the whole.

        So objectives made from the parts add up to that of the whole. A part may have no (usable) tasks.
        """
        part = Labels.__new__(Labels)
        part.values = self.values[:, start:stop]
        for name in ("positives", "negatives", "positive_rate", "negative_rate", "usable"):
            setattr(part, name, getattr(self, name)[start:stop])
        part.num_rows, part.num_tasks, part.num_usable = self.num_rows, stop - start, self.num_usable
        part._whole, part._start = self, start
        return part

    def task_weights(self, power: float) -> Tensor:
        """Weights `[m]`: (positive share of a task's labels)^-power, of mean one over the usable tasks."""
        if self._whole is not None:
            return self._whole.task_weights(power)[self._start : self._start + self.num_tasks]
        return task_weights(self.positives, self.negatives, power)

    @property
    def device(self) -> torch.device:
        """Where the labels are."""
        return self.values.device

    def __repr__(self) -> str:
        return f"Labels(rows={self.num_rows}, tasks={self.num_tasks}, usable={self.num_usable})"


def task_weights(positives: Tensor, negatives: Tensor, power: float) -> Tensor:
    """(Positive share of labels)^-power `[m]`, of mean one over tasks with both classes; zero for others."""
    usable = (positives > 0) & (negatives > 0)
    share = positives.double() / (positives.double() + negatives.double())
    weight = torch.where(usable, share, 1.0) ** -power * usable
    return weight * (usable.sum() / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny))
