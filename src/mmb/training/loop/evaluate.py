"""How good a model is: scores of a part of the data, metrics of each task, thresholds for decisions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mmb import metrics
from mmb.models.batch_norm import recalibrate_batch_norm
from mmb.quantiles import negative_quantiles
from mmb.training.loop.setup import Job
from mmb.training.runs.logits import autocast, predict_logits

_RECALIBRATION_ROWS = 8192  # the error of a mean over them is about one per cent of the spread


class TrainingError(Exception):
    """Training cannot go on; the message says what to do about it."""


def evaluate_part(job: Job, part: str) -> dict[str, float]:
    """Mean metrics of a job's current weights on a part of the data, NaN if no task has both classes there.

    Raises:
        TrainingError: If a score is not a finite number.
    """
    logits, labels = part_logits(job, part)
    return mean_metrics(task_metrics(logits, labels, job.recipe.training.max_fpr))


def part_logits(job: Job, part: str) -> tuple[Tensor, Tensor]:
    """Logits and labels `[n, m]` of a part of the data, with a job's current weights.

    Raises:
        TrainingError: If a score is not a finite number.
    """
    logits, labels = row_logits(job, job.dataset.split[part])
    if not bool(logits.isfinite().all()):
        raise TrainingError(
            f"the network's scores are no longer finite: lower optimizer.lr (now "
            f"{job.recipe.optimizer.lr:g}) or set optimizer.clip, and train anew"
        )
    return logits, labels


def row_logits(job: Job, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and labels `[n, m]` of some rows, with a job's current weights."""
    settings = job.recipe.training
    precision, size = getattr(torch, settings.precision), settings.evaluation_batch_size
    logits = predict_logits(job.model, job.dataset, rows, size, precision, job.ranks)
    return logits, job.dataset.labels[rows.to(job.dataset.device)]


def recalibrate(job: Job) -> None:
    """Estimate the statistics of batch normalisation on uniformly drawn training rows, always the same ones.

    Batches that are rich in positives have other statistics than the rows the model will meet.
    """
    settings, rows = job.recipe.training, job.some_training_rows("batch_norm", _RECALIBRATION_ROWS)
    batches = rows.tensor_split(math.ceil(len(rows) / min(settings.evaluation_batch_size, 1024)))
    with autocast(job.dataset.device, getattr(torch, settings.precision)):
        recalibrate_batch_norm(job.model, (inputs for _, inputs in job.dataset.stream(batches)))


def task_metrics(logits: Tensor, labels: Tensor, max_fpr: float) -> dict[str, Tensor]:
    """AUC, partial AUC (McClish) and average precision of every task `[m]`; NaN where a class lacks."""
    if not bool((labels >= 0).any()):  # a part of the data without rows, or without labels
        nothing = torch.full(labels.shape[1:], torch.nan, dtype=torch.float64)
        return dict.fromkeys(metrics.SHORT_NAMES, nothing)
    found = metrics.evaluate(logits, labels, max_fpr)
    return {short: found[name] for short, name in metrics.SHORT_NAMES.items()}


def mean_metrics(per_task: dict[str, Tensor]) -> dict[str, float]:
    """Mean of each metric over the tasks that have one."""
    return {name: float(values.nanmean()) for name, values in per_task.items()}


def decision_thresholds(logits: Tensor, labels: Tensor, max_fprs: Sequence[float]) -> Tensor:
    """For each rate and task the lowest threshold with a false positive rate within that rate.

    A row is called positive if its logit is larger than the threshold, which is that of a negative.

    Args:
        logits: `[n, m]`.
        labels: `[n, m]` with -1 for gaps.
        max_fprs: The rates, in (0, 1].

    Returns:
        `[len(max_fprs), m]`; NaN for tasks without negatives, minus infinity for a rate of one.
    """
    found = negative_quantiles(logits, labels == 0, max_fprs)
    all_pass = torch.tensor([[rate == 1] for rate in max_fprs], device=logits.device)
    return found.masked_fill(all_pass & ~found.isnan(), -torch.inf)


def rates_at(logits: Tensor, labels: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor]:
    """False and true positive rate of each task `[m]`, calling rows above `thresholds [m]` positive.

    NaN where a task has no such rows, or no threshold (NaN).
    """
    called = logits > thresholds
    rates = ((called & (labels == c)).sum(0) / (labels == c).sum(0) for c in (0, 1))
    fpr, tpr = (torch.where(thresholds.isnan(), torch.nan, rate) for rate in rates)
    return fpr, tpr


def plain(values: Tensor) -> list[Any]:
    """Numbers for JSON, which has no NaN: None in its place."""
    return [None if isinstance(v, float) and not math.isfinite(v) else v for v in values.tolist()]
