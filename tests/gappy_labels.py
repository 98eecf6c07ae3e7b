"""Label matrices with gaps and rare classes, for samplers."""

from __future__ import annotations

import torch


def make_labels(num_rows=300, num_tasks=6, seed=0):
    """Random labels with gaps; task 0 has few positives, task 1 few negatives."""
    generator = torch.Generator().manual_seed(seed)
    chance = torch.linspace(0.1, 0.5, num_tasks)
    values = (torch.rand(num_rows, num_tasks, generator=generator) < chance).to(torch.int8)
    values[torch.rand(num_rows, num_tasks, generator=generator) < 0.3] = -1
    values[:, 0] = 0
    values[5:8, 0] = 1
    values[:, 1] = 1
    values[20:22, 1] = 0
    return values
