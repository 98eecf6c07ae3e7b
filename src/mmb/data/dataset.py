"""What every data set has: inputs, labels (some may be missing), a split, and the names of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from mmb._names import has_control
from mmb.label_values import MISSING

SPLITS = ("train", "valid", "test")
Progress = Callable[[int, int], None]
"""Called with how much is done, and how much there is to do in all."""


class Inputs(Protocol):
    """What a model takes, with one entry per row; a plain tensor `[n, ...]` will do.

    Inputs may have two more methods: `augmented(rows, generator)` returns the model input of rows after
    random augmentation, for training; `stream(batches, generator)` is as in `Dataset`, if workers read ahead.
    """

    def __len__(self) -> int:
        """Number of rows."""

    def __getitem__(self, rows: Tensor, /) -> Any:
        """The model input of the given rows (a LongTensor on the host or the device), on the device."""

    def to(self, device: torch.device, /) -> Inputs:
        """The same rows, giving model inputs on `device`."""


class NewRows(NamedTuple):
    """Some rows of a file to predict for."""

    columns: dict[str, list[str]]
    """The file's own cells, by column."""
    inputs: Inputs
    """What a model takes; a placeholder for a row with a problem."""
    problems: list[str]
    """Why a row cannot be scored, empty if it can."""
    unseen: Mapping[str, tuple[int, str]] = MappingProxyType({})
    """Columns in which rows have names that no training row has: how many rows, and one of the names."""


class Encoder(Protocol):
    """How a file of new rows becomes model inputs: what prediction needs, kept as JSON with a run.

    An object of your own class can be one: see [files of new rows](../training.md#files-of-new-rows).
    """

    def batches(self, path: Path) -> Iterator[NewRows]:
        """The rows of a file, some at a time, in order, with its own columns; at least one batch."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON with the key `kind`: for your own class, its import path `package.module:Class`."""

    @staticmethod
    def from_json(data: dict[str, Any]) -> Encoder:
        """The encoder that wrote `data` with `to_json`; it may be a class method."""


@runtime_checkable
class FeatureEncoder(Encoder, Protocol):
    """An encoder whose inputs are features `[n, features]`: zeros and ones, except for some numbers."""

    @property
    def numeric_places(self) -> list[int]:
        """Places of the numbers among the features."""


@dataclass(frozen=True)
class Dataset:
    """Inputs and labels of all rows, and which rows are for training, validation and testing.

    Attributes:
        name: Name of the data set.
        inputs: What a model takes; `inputs[rows]` is the model input of some rows.
        labels: `int8 [n, m]`: 1 positive, 0 negative, -1 missing.
        split: Row indices of `"train"`, `"valid"` and `"test"`. They stay on the host, where rows are
            sampled: indices on the host work for tensors on any device, and the sizes of ragged inputs are
            known without waiting for the device.
        task_names: One name per column of `labels`.
        encoder: How new files become inputs of the same kind, if that is defined.
        details: Facts about this data set (options, counts, source) in plain types, logged with a run.
    """

    name: str
    inputs: Inputs
    labels: Tensor
    split: Mapping[str, Tensor]
    task_names: tuple[str, ...]
    encoder: Encoder | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.inputs)
        if self.labels.dtype != torch.int8 or self.labels.shape != (n, len(self.task_names)):
            raise ValueError(
                f"labels must be int8 of shape [{n}, {len(self.task_names)}] (rows, tasks), "
                f"got {self.labels.dtype} of shape {list(self.labels.shape)}"
            )
        for name in self.task_names:
            if has_control(name):
                raise ValueError(f"task_names: {name!r} has a control character: give that task another name")
        if len(set(self.task_names)) < len(self.task_names):
            twice = next(name for name in self.task_names if self.task_names.count(name) > 1)
            raise ValueError(f"task_names: {twice!r} is there more than once: give each task its own name")
        if set(self.split) != set(SPLITS):
            raise ValueError(f"split must have exactly the keys {SPLITS}, got {tuple(self.split)}")
        for part, rows in self.split.items():
            if rows.dtype != torch.int64 or rows.device.type != "cpu" or rows.ndim != 1:
                raise ValueError(
                    f"split[{part!r}] must be a one-dimensional int64 tensor on the host, "
                    f"got {rows.dtype} of shape {list(rows.shape)} on {rows.device}"
                )
            if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < n:
                raise ValueError(
                    f"split[{part!r}]: expected rows from 0 to {n - 1}, "
                    f"got {int(rows.min())} to {int(rows.max())}"
                )

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def device(self) -> torch.device:
        """Where the labels are, and where model inputs are created."""
        return self.labels.device

    def to(self, device: torch.device | str) -> Self:
        """The same data set with labels and inputs on `device`."""
        device = torch.device(device)
        return replace(self, inputs=self.inputs.to(device), labels=self.labels.to(device))

    def batch(self, rows: Tensor, generator: torch.Generator | None = None) -> Any:
        """Model input of some rows.

        Args:
            rows: Row indices, LongTensor.
            generator: If given, and if the inputs define an augmentation, the rows are augmented with it.

        Returns:
            What to call the model with, on `device`.
        """
        if generator is not None and hasattr(self.inputs, "augmented"):
            return self.inputs.augmented(rows, generator)
        if isinstance(self.inputs, Tensor):
            rows = rows.to(self.device, non_blocking=True)  # an index on the host would wait for the device
        return self.inputs[rows]

    def stream(
        self, batches: Iterable[Tensor], generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Any]]:
        """Model inputs of many batches, in order; images on disk are decoded ahead by worker processes.

        Reading ahead takes rows from `batches` before they are used, so `batches` should be able to resume at
        a given step. Augmentation draws from `generator` only when a batch is handed out.

        Args:
            batches: Row indices of each batch.
            generator: Augments as in `batch`, if given.

        Yields:
            The rows of a batch and their model input.
        """
        if hasattr(self.inputs, "stream"):
            yield from self.inputs.stream(batches, generator)
        else:
            for rows in batches:
                yield rows, self.batch(rows, generator)

    def describe(self) -> dict[str, Any]:
        """Counts of positives, negatives and missing labels by task and part of the split, as plain JSON."""
        return {
            "name": self.name,
            "rows": len(self),
            "tasks": len(self.task_names),
            "split": {part: len(self.split[part]) for part in SPLITS},
            "task_names": list(self.task_names),
            "counts": {part: _counts(self.labels[self.split[part]]) for part in SPLITS},
            "details": dict(self.details),
        }


def _counts(labels: Tensor) -> dict[str, list[int]]:
    return {
        key: (labels == value).sum(0).tolist()
        for key, value in (("positive", 1), ("negative", 0), ("missing", MISSING))
    }
