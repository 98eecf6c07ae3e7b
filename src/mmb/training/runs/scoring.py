"""Scores of a model and what they are worth: logits, metrics of each task, thresholds for decisions."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from mmb import metrics
from mmb.data import Dataset
from mmb.metrics.titles import shown_metrics
from mmb.models.outputs import logits_of
from mmb.quantiles import negative_quantiles
from mmb.training.processes.group import ONE, Ranks


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode without gradients, and each of its parts back in its mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def predict_logits(
    model: nn.Module,
    dataset: Dataset,
    rows: Tensor,
    batch_size: int,
    precision: torch.dtype = torch.float32,
    ranks: Ranks = ONE,
) -> Tensor:
    """Logits of some rows, float32 `[len(rows), m]`, on the data's device.

    Many processes (`ranks`, all of which must call this) compute some rows each, and all get all.
    """
    own = rows[ranks.rows(len(rows))]
    parts = [torch.empty(0, dataset.labels.shape[1], device=dataset.device)]
    with evaluating(model), autocast(dataset.device, precision):
        for asked, inputs in dataset.stream(torch.split(own, batch_size) if len(own) else ()):
            found = _of_tasks(logits_of(model(inputs)).float(), dataset.labels.shape[1])
            if len(found) != len(asked):
                raise ValueError(
                    f"the model returned logits of {len(found)} rows for {len(asked)} rows of the data"
                )
            parts.append(found)
    return ranks.gather_rows(torch.cat(parts), len(rows))


def _of_tasks(logits: Tensor, num_tasks: int) -> Tensor:
    """Logits `[n, m]`, or `[n]` of one task, as `[n, m]`; those of other tasks are refused."""
    found = logits.unsqueeze(1) if logits.dim() == 1 else logits
    if found.dim() != 2 or found.shape[1] != num_tasks:
        raise ValueError(
            f"the model returned logits of shape {tuple(logits.shape)}, but the data has {num_tasks} tasks: "
            f"expected [rows, {num_tasks}]"
        )
    return found


@contextmanager
def autocast(device: torch.device, precision: torch.dtype) -> Iterator[None]:
    """Compute on a device: with automatic mixed precision, or without for float32.

    Without torch's cache of cast weights: it would outlive weights that are loaded into a model inside. A GPU
    is the current one inside, on which Triton launches kernels.
    """
    current = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    enabled = precision != torch.float32
    dtype = precision if enabled else torch.bfloat16
    with current, torch.autocast(device.type, dtype=dtype, enabled=enabled, cache_enabled=False):
        yield


def task_metrics(
    logits: Tensor, labels: Tensor, max_fpr: float, select: metrics.MetricName = "pauc"
) -> dict[str, Tensor]:
    """AUC, partial AUC, average precision and `select` of every task `[m]`; NaN where a class is missing."""
    names = shown_metrics(select)
    if not bool((labels >= 0).any()):  # a part of the data without rows, or without labels
        nothing = torch.full(labels.shape[1:], torch.nan, dtype=torch.float64)
        return dict.fromkeys(names, nothing)
    others = [name for name in names if name not in metrics.SHORT_NAMES]
    found = metrics.evaluate(logits, labels, max_fpr, others)
    return {name: found[metrics.SHORT_NAMES.get(name, name)] for name in names}


def mean_metrics(per_task: dict[str, Tensor]) -> dict[str, float]:
    """Mean of each metric over the tasks that have one."""
    return {name: float(values.nanmean()) for name, values in per_task.items()}


def plain_means(means: Mapping[str, float]) -> dict[str, float | None]:
    """Means of metrics for JSON, None where they are not defined."""
    return {name: value if math.isfinite(value) else None for name, value in means.items()}


def decision_thresholds(logits: Tensor, labels: Tensor, max_fprs: Sequence[float]) -> Tensor:
    """For each rate and task the lowest threshold with a false positive rate within that rate.

    A row is called positive if its logit is larger than the threshold, which is the logit of a negative. The
    answer is `[len(max_fprs), m]`; NaN for tasks without negatives, minus infinity for a rate of one.
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
