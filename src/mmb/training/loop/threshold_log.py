"""Tracked thresholds and the quantiles they should be near, over training."""

import math
from pathlib import Path

import torch
from torch import Tensor

from mmb.auc import ThresholdReport
from mmb.training.loop.evaluate import row_logits
from mmb.training.loop.setup import Setup
from mmb.training.runs.log import append_record, read_lines
from mmb.training.runs.scoring import plain

_FILE = "thresholds.jsonl"
_ROWS = 4096  # give a rate of 0.1 within about 0.005


def training_scores(setup: Setup) -> tuple[Tensor, Tensor]:
    """Logits and labels `[n, m]` of (at most 4,096) training rows, always the same ones."""
    return row_logits(setup, setup.some_training_rows("report", _ROWS))


def record(folder: Path, setup: Setup, step: int) -> None:
    """Append the thresholds of one step to `thresholds.jsonl`, if the objective tracks any.

    A run that resumes writes the steps since its checkpoint again; `read` takes the last of each.
    """
    if not setup.objective.tracks_thresholds:
        return
    found = setup.objective.threshold_report(*training_scores(setup))
    if found is not None and setup.ranks.is_main:
        numbers = {name: plain(values) for name, values in found._asdict().items()}
        append_record(folder / _FILE, {"step": step, **numbers})


def read(folder: Path) -> dict[int, ThresholdReport]:
    """What `record` wrote, by step; lines that a kill cut short are left out."""
    found = {}
    for line in read_lines(folder / _FILE):
        columns = (
            [math.nan if value is None else value for value in line[n]] for n in ThresholdReport._fields
        )
        found[line["step"]] = ThresholdReport(*map(torch.tensor, columns))
    return found
