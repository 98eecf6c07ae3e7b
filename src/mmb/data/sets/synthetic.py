"""Synthetic multi-task data: any number of rows, tasks and features, any imbalance, any gaps.

Generated, so nothing is downloaded. Rows are standard normal; a random layer of tanh features is
shared by all tasks, so that tasks are related; a task's score is a random mix of those features plus noise,
and its positives are the rows with the highest scores. Split at random by the seed (60 / 20 / 20).
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from mmb.data.dataset import Dataset
from mmb.data.inputs.columns import plain_columns
from mmb.data.splits import random_split
from mmb.label_values import MISSING


def load(
    root: Path | None = None,
    *,
    rows: int = 2000,
    tasks: int = 10,
    features: int = 20,
    positive_rate: float | Sequence[float] = 0.05,
    missing_rate: float = 0.0,
    noise: float = 0.5,
    fractions: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
) -> Dataset:
    """Make the data set.

    With `x ~ N(0, I)`, `h = tanh(x A)` and `s_k = h b_k + noise * e`, task k is positive on the
    `round(positive_rate * rows)` (at least one) rows with the largest `s_k`.

    Args:
        root: Not used: nothing is stored.
        rows: Number of rows.
        tasks: Number of tasks.
        features: Number of features.
        positive_rate: Share of positives, one number or one per task.
        missing_rate: Share of labels that are missing, at random.
        noise: Size of the noise, relative to scores of unit size; 0 makes the labels a function of the row.
        fractions: Of train, valid and test.
        seed: Seed of everything random.
    """
    if rows < 2 or tasks < 1 or features < 1:
        raise ValueError(f"need rows >= 2, tasks >= 1 and features >= 1, got {rows}, {tasks}, {features}")
    rates = torch.as_tensor(positive_rate, dtype=torch.float64)
    if rates.ndim > 0 and rates.shape != (tasks,):
        raise ValueError(f"positive_rate must be one number or {tasks} (one per task), got {positive_rate}")
    if not bool(((rates > 0) & (rates < 1)).all()):
        raise ValueError(f"positive_rate must lie strictly between 0 and 1, got {positive_rate}")
    if not 0 <= missing_rate < 1 or noise < 0:
        raise ValueError(f"need 0 <= missing_rate < 1 and noise >= 0, got {missing_rate} and {noise}")
    generator = torch.Generator().manual_seed(seed)
    width = 16
    inputs = torch.randn(rows, features, generator=generator)
    hidden = torch.tanh(inputs @ torch.randn(features, width, generator=generator) * (2 / features**0.5))
    scores = hidden @ torch.randn(width, tasks, generator=generator) * (1.2 / width**0.5)
    scores += noise * torch.randn(rows, tasks, generator=generator)
    positives = (rates.expand(tasks) * rows).round().long().clamp(1, rows - 1)
    threshold = scores.sort(0, descending=True).values.gather(0, (positives - 1).unsqueeze(0))
    labels = (scores >= threshold).to(torch.int8)
    labels[torch.rand(rows, tasks, generator=generator) < missing_rate] = MISSING
    return Dataset(
        name="synthetic",
        inputs=inputs,
        labels=labels,
        split=random_split(rows, fractions, generator),
        task_names=tuple(f"task_{k}" for k in range(tasks)),
        encoder=plain_columns([f"x{j}" for j in range(features)]),
        details={"seed": seed, "noise": noise, "missing_rate": missing_rate},
    )
