"""Rows and labels that training steps are timed on, and the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from mmb import auc
from mmb.auc.sampling import RichRowSampler, TaskSampler
from mmb.models import MultiTask, mlp

Step = Callable[[], None]
WIDTH, ROWS, TASKS = 256, 128, 10
LR = 0.01


class Data:
    """Random rows and labels, a tenth of them positive, a tenth missing; LibAUC gets the missing as 0."""

    def __init__(self, num_tasks: int, num_rows: int) -> None:
        generator = torch.Generator().manual_seed(num_tasks)
        self.num_tasks, self.num_rows = num_tasks, num_rows
        self.inputs = torch.randn(num_rows, WIDTH, generator=generator)
        uniform = torch.rand(num_rows, num_tasks, generator=generator)
        values = (uniform < 0.1).to(torch.int8) - (uniform > 0.9).to(torch.int8)
        self.labels = auc.Labels(values)
        self.full = (values == 1).float()
        self.dense = [
            draw.batch(self.inputs, values) for draw in self._few(RichRowSampler(self.labels, ROWS))
        ]
        sampler = TaskSampler(self.labels, TASKS, ROWS, independent_lower=True)
        self.sampled = [draw.batch(self.inputs) for draw in self._few(sampler)]

    @staticmethod
    def _few(sampler: Any) -> Iterator[Any]:
        return (draw for draw, _ in zip(sampler, range(8), strict=False))

    def model(self) -> MultiTask:
        """A network that starts at the same weights every time."""
        torch.manual_seed(0)
        return mlp(WIDTH, [WIDTH], self.num_tasks)
