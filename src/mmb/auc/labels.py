"""The label matrix of a multi-task problem: 0, 1 and gaps, checked once when the data is built."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

MISSING = -1
"""The label of a row that was never measured for a task."""

_DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)


class Labels:
    """A checked label matrix and what the objectives and samplers need to know about it.

    Everything a training step would otherwise have to check again (values, tasks without a class) is settled
    here, once; a step then never waits for the device to learn whether its labels are sound.

    Attributes:
        values: int8 `[n, m]` with 0, 1 and `MISSING` (-1).
        positives: Number of rows labelled 1, per task, `[m]`.
        negatives: Number of rows labelled 0, per task, `[m]`.
        positive_rate: `positives / n`: the share of ALL rows that are labelled positive, float64 `[m]`.
        negative_rate: `negatives / n`, float64 `[m]`.
        usable: bool `[m]`: tasks with at least one positive and one negative. The others are left out of
            training: weight zero, never sampled.
        num_rows: `n`.
        num_tasks: `m`.
        num_usable: Number of usable tasks.
    """

    def __init__(self, matrix: Tensor) -> None:
        """Check a label matrix.

        Args:
            matrix: `[n, m]`, or `[n]` for one task. Values 0, 1 and missing: NaN in floating point, -1 in
                signed integers; bool and uint8 have no gaps.

        Raises:
            TypeError: If `matrix` is not a tensor, or of a dtype that labels cannot have.
            ValueError: If it has another number of axes, is empty, holds another value (the first bad row and
                task are named), or if no task has both a positive and a negative.

        Warns:
            UserWarning: Once, listing the tasks that are left out.
        """
        self.values = as_labels(matrix)
        self.positives = (self.values == 1).sum(0)
        self.negatives = (self.values == 0).sum(0)
        self.num_rows, self.num_tasks = self.values.shape
        self.positive_rate = self.positives.double() / self.num_rows
        self.negative_rate = self.negatives.double() / self.num_rows
        self.usable = (self.positives > 0) & (self.negatives > 0)
        self.num_usable = int(self.usable.sum())
        self._whole: Labels | None = None  # of which these are some columns, and from where on
        self._start = 0
        if not bool((self.positives + self.negatives).any()):
            raise ValueError(
                "labels: every label is missing; at least one task needs a positive and a negative"
            )
        if self.num_usable == 0:
            raise ValueError(
                "labels: no task has both a positive and a negative, so no ranking can be learned; "
                f"positives per task {_few(self.positives.tolist())}, "
                f"negatives per task {_few(self.negatives.tolist())}"
            )
        if self.num_usable < self.num_tasks:
            left_out = (~self.usable).nonzero().squeeze(1).tolist()
            warnings.warn(
                f"{len(left_out)} of {self.num_tasks} tasks have no positive or no negative "
                f"and are left out: {_few(left_out)}",
                UserWarning,
                stacklevel=2,
            )

    def columns(self, start: int, stop: int) -> Labels:
        """The tasks `start` to `stop - 1` alone, counted as a part of the whole.

        `num_usable` and the task weights stay those of all tasks, so that objectives made from the parts of
        one label matrix add up to the objective of all of it. A part may lack usable tasks, or all tasks.
        """
        part = Labels.__new__(Labels)
        part.values = self.values[:, start:stop]
        for name in ("positives", "negatives", "positive_rate", "negative_rate", "usable"):
            setattr(part, name, getattr(self, name)[start:stop])
        part.num_rows, part.num_tasks, part.num_usable = self.num_rows, stop - start, self.num_usable
        part._whole, part._start = self, start
        return part

    def task_weights(self, power: float) -> Tensor:
        """Weights `[m]` as (positive share of a task's labels)^-power, of mean one over the usable tasks.

        Tasks that are left out have weight zero.
        """
        if self._whole is not None:
            return self._whole.task_weights(power)[self._start : self._start + self.num_tasks]
        share = self.positive_rate / (self.positive_rate + self.negative_rate)
        weight = torch.where(self.usable, share, 1.0) ** -power * self.usable
        return weight * (self.num_usable / weight.sum())

    @property
    def device(self) -> torch.device:
        """Where the labels are."""
        return self.values.device

    def __repr__(self) -> str:
        return f"Labels(rows={self.num_rows}, tasks={self.num_tasks}, usable={self.num_usable})"


def as_labels(matrix: Tensor) -> Tensor:
    """Turn a label matrix with gaps into int8 with -1 for missing.

    Args:
        matrix: `[n, m]` or `[n]` with 0, 1 and missing (NaN in floating point, -1 in signed integers).

    Returns:
        int8 `[n, m]`.

    Raises:
        TypeError: If `matrix` is not a tensor, or of a dtype that labels cannot have.
        ValueError: If it is neither `[n, m]` nor `[n]`, empty, or holds something but 0, 1, missing.
    """
    if not isinstance(matrix, Tensor):
        raise TypeError(
            f"labels must be a torch.Tensor, got {type(matrix).__name__}; use torch.as_tensor(...)"
        )
    if matrix.dim() not in (1, 2):
        raise ValueError(f"labels must be [rows, tasks] or [rows], got shape {tuple(matrix.shape)}")
    if matrix.numel() == 0:
        raise ValueError(f"labels is empty: shape {tuple(matrix.shape)}; expected [rows, tasks]")
    matrix = matrix.unsqueeze(1) if matrix.dim() == 1 else matrix
    check_values(matrix)
    if matrix.is_floating_point():
        return matrix.nan_to_num(nan=float(MISSING)).to(torch.int8)
    return matrix.to(torch.int8)


def check_values(labels: Tensor) -> None:
    """Raise ValueError naming the first label outside {0, 1, missing}; this waits for a GPU's values.

    Raises:
        TypeError: If the dtype is none that labels can have.
    """
    if labels.dtype == torch.bool:
        return
    if labels.dtype not in _DTYPES:
        raise TypeError(
            "labels must be of a bool, uint8, signed integer or 16 to 64 bit float dtype, "
            f"got {labels.dtype}; use labels.to(torch.int8)"
        )
    # arithmetic and extremes: on a CPU several times faster than comparing every entry
    if labels.is_floating_point():
        known = labels.nan_to_num(nan=0.0)
        good = not any(float(v) for v in (known * known - known).aminmax())
    else:
        low, high = (int(v) for v in labels.aminmax())  # torch compares -1 with uint8 as if it were 255
        good = low >= MISSING and high <= 1
    if good:
        return
    missing = labels.isnan() if labels.is_floating_point() else (labels == MISSING) & labels.dtype.is_signed
    place = (~((labels == 0) | (labels == 1) | missing)).nonzero()[0].tolist()
    raise ValueError(
        f"labels must be 0, 1 or missing (NaN in floating point, {MISSING} in integers); "
        f"got {labels[tuple(place)].item()} in {labels.dtype} at index {place} of shape {tuple(labels.shape)}"
    )


def _few(items: list[int], most: int = 20) -> str:
    """The items, or the first `most` of them and how many more there are."""
    return str(items) if len(items) <= most else f"{items[:most]} and {len(items) - most} more"
