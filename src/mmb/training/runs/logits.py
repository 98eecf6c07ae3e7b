"""Logits of a network on rows of data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from mmb.data import Dataset
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
        for _, inputs in dataset.stream(torch.split(own, batch_size) if len(own) else ()):
            parts.append(model(inputs).float())
    return ranks.gather_rows(torch.cat(parts), len(rows))


def autocast(device: torch.device, precision: torch.dtype) -> torch.autocast:
    """Automatic mixed precision, or nothing with float32."""
    enabled = precision != torch.float32
    return torch.autocast(device.type, dtype=precision if enabled else torch.bfloat16, enabled=enabled)
