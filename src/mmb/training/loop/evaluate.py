"""Scores and metrics of a run's current weights on a part of the data."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from mmb.label_values import MISSING
from mmb.models.batch_norm import recalibrate_batch_norm
from mmb.training.loop.randomness import derive_seed
from mmb.training.loop.setup import Setup
from mmb.training.runs.scoring import mean_metrics, predict_logits, task_metrics
from mmb.trees import tensors

_RECALIBRATION_ROWS = 8192  # the error of a mean over them is about 1% of the spread


class TrainingError(Exception):
    """Training cannot continue; the message says what to do about it."""


def diverged(problem: str, setup: Setup) -> TrainingError:
    """The error of a run whose numbers are not finite, with advice."""
    lr = setup.recipe.optimizer.lr
    return TrainingError(f"{problem}: lower optimizer.lr (now {lr:g}) or set optimizer.clip, and train again")


def evaluate_part(setup: Setup, part: str) -> dict[str, float]:
    """Mean metrics of the current weights on a part of the data; NaN if no task has both classes there."""
    logits, labels = part_logits(setup, part)
    settings = setup.recipe.training
    return mean_metrics(task_metrics(logits, labels, settings.max_fpr, settings.select))


def training_metrics(setup: Setup) -> dict[str, float]:
    """Mean metrics on some training rows, as `train_NAME`, if the recipe asks for them; those defined."""
    settings = setup.recipe.training
    if not settings.train_rows:
        return {}
    logits, labels = row_logits(setup, setup.some_training_rows("train_rows", settings.train_rows))
    means = mean_metrics(task_metrics(logits, labels, settings.max_fpr, settings.select))
    return {f"train_{name}": value for name, value in means.items() if math.isfinite(value)}


def part_logits(setup: Setup, part: str) -> tuple[Tensor, Tensor]:
    """Logits and labels `[n, m]` of a part of the data, as `measured_logits` gives them.

    Raises:
        TrainingError: If a score is not finite.
    """
    logits, labels = measured_logits(setup, setup.dataset.split[part])
    bad = ~logits.isfinite().all(1)
    if bool(bad.any()):
        row = setup.dataset.split[part][bad.nonzero()[0].cpu()]
        inputs = [leaf for leaf in tensors(setup.dataset.batch(row)) if leaf.is_floating_point()]
        if not all(bool(leaf.isfinite().all()) for leaf in inputs):
            raise TrainingError(
                f"the inputs of row {int(row)}, counted from 0, have a number that is not finite: replace "
                "such numbers (NaN, infinite) before training"
            )
        raise diverged("the network's scores are not finite", setup)
    return logits, labels


def measured_logits(setup: Setup, rows: Tensor, model: nn.Module | None = None) -> tuple[Tensor, Tensor]:
    """As `row_logits`, without the labels of tasks that cannot be trained on: their scores are random."""
    logits, labels = row_logits(setup, rows, model)
    return logits, labels.where(setup.trained, MISSING)


def row_logits(setup: Setup, rows: Tensor, model: nn.Module | None = None) -> tuple[Tensor, Tensor]:
    """Logits and labels `[n, m]` of some rows, by the run's network or another one."""
    model, size = setup.model if model is None else model, setup.recipe.training.evaluation_batch_size
    logits = predict_logits(model, setup.dataset, rows, size, setup.precision, setup.ranks)
    return logits, setup.dataset.labels[rows.to(setup.dataset.device)]


def recalibrate(setup: Setup) -> None:
    """Estimate the statistics of batch normalization again, on the rows of `CalibrationInputs`."""
    with setup.autocast():
        recalibrate_batch_norm(setup.model, CalibrationInputs(setup))


class CalibrationInputs:
    """Inputs of uniformly drawn training rows in batches, the same in every iteration.

    Batches that are rich in positives have other statistics than new rows. Where training augments, so does
    this: rows that a network has learned by heart have other statistics, too.
    """

    def __init__(self, setup: Setup) -> None:
        rows = setup.some_training_rows("batch_norm", _RECALIBRATION_ROWS)
        size = min(setup.recipe.training.evaluation_batch_size, 1024)
        self._dataset, self._batches = setup.dataset, rows.tensor_split(math.ceil(len(rows) / size))
        self._seed = derive_seed(setup.recipe.seed, "batch_norm")

    def __iter__(self) -> Iterator[Any]:
        """The inputs, batch by batch."""
        generator = torch.Generator().manual_seed(self._seed)
        return (inputs for _, inputs in self._dataset.stream(self._batches, generator))
