"""Tracked thresholds beside the quantiles they should be at, over training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmb._atomic_files import writing
from mmb.auc import PairwisePartialAUC, PartialAUC
from mmb.auc.sharded import of_all_tasks, of_own_tasks, own_tasks
from mmb.training.loop.evaluate import plain, rates_at, row_logits
from mmb.training.loop.setup import Job
from mmb.training.runs.log import read_lines

_FILE = "thresholds.jsonl"
_ROWS = 4096  # a rate of 0.1 is known to about five per cent of itself


class Tracked(NamedTuple):
    """Thresholds at one step, on the scale of the logits.

    Attributes:
        tracked: What the objective holds, `[m]`.
        quantile: The true quantile of the scores of training negatives, `[m]`; NaN without negatives.
        rate: Share of training negatives above what is tracked, `[m]`.
        soft_rate: The same, smoothed as the objective does it, `E_-[sigmoid((z - threshold) / tau1)]`: what
            tracking brings to the rate aimed at.
    """

    tracked: Tensor
    quantile: Tensor
    rate: Tensor
    soft_rate: Tensor


def look(job: Job, logits: Tensor, labels: Tensor) -> Tracked | None:
    """Compare a job's tracked thresholds with the scores of training rows; None if it tracks none."""
    objective = own_tasks(job.objective)
    if not isinstance(objective, PartialAUC | PairwisePartialAUC):
        return None
    logits, labels = (of_own_tasks(job.objective, values) for values in (logits, labels))
    if logits.numel() == 0:  # a process without tasks
        nothing = objective.thresholds().float()
        return Tracked(*(of_all_tasks(job.objective, nothing) for _ in Tracked._fields))
    tracked, quantile = objective.thresholds(), objective.thresholds(logits, labels)
    entries = objective.entries(logits, labels).averaged()
    cut = objective.cut_and_score(entries)[0] if isinstance(objective, PartialAUC) else entries.logits
    lower = objective.tracked
    soft = lower.rates[0] * entries.negative_mass - lower.look(entries, cut).slope[0]  # at tau2 = 0
    rate = rates_at(logits, labels, tracked)[0]
    soft = soft.where(rate.isfinite(), torch.nan)
    return Tracked(
        *(of_all_tasks(job.objective, values.float()) for values in (tracked, quantile, rate, soft))
    )


def training_scores(job: Job) -> tuple[Tensor, Tensor]:
    """Logits and labels `[n, m]` of (at most 4,096) training rows, always the same ones."""
    return row_logits(job, job.some_training_rows("report", _ROWS))


def record(folder: Path, job: Job, step: int) -> None:
    """Append the thresholds of one step to `thresholds.jsonl`, if the objective tracks any.

    A run that resumes writes the steps since its checkpoint again; `read` takes the last of each.
    """
    tracks = hasattr(own_tasks(job.objective), "tracked")
    found = look(job, *training_scores(job)) if tracks else None
    if found is not None and job.ranks.is_main:
        numbers = {name: plain(values) for name, values in found._asdict().items()}
        with writing(folder / _FILE), open(folder / _FILE, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **numbers}) + "\n")


def read(folder: Path) -> dict[int, Tracked]:
    """What `record` wrote, by step; lines that a kill cut short are left out."""
    return {
        one["step"]: Tracked(*(_tensor(one[name]) for name in Tracked._fields))
        for one in read_lines(folder / _FILE)
    }


def _tensor(values: list[Any]) -> Tensor:
    return torch.tensor([torch.nan if value is None else value for value in values])
