"""The weights of a model before its last step, to evaluate it there once more."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class PreviousWeights(nn.Module):
    """A copy of all parameters of a model, as one vector."""

    value: Tensor

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.register_buffer("value", torch.cat(_flat(model)))

    def follow(self, model: nn.Module) -> None:
        """Take the weights of the model as they are now."""
        parts = _flat(model)
        self._check(sum(part.numel() for part in parts))
        torch.cat(parts, out=self.value)

    @contextmanager
    def put_in(self, model: nn.Module) -> Iterator[None]:
        """Inside, the model has these weights; afterwards its own, its buffers and random numbers as before.

        So dropout draws the same masks in both evaluations, and running statistics move in one of them.
        """
        parameters, buffers = list(model.parameters()), list(model.buffers())
        own, kept = [parameter.data for parameter in parameters], [buffer.clone() for buffer in buffers]
        there = [self.value.device] if self.value.is_cuda else []
        sizes = [parameter.numel() for parameter in parameters]
        self._check(sum(sizes))
        with torch.random.fork_rng(devices=there), torch.no_grad():
            try:
                for parameter, part in zip(parameters, torch.split(self.value, sizes), strict=True):
                    parameter.data = part.view_as(parameter).to(parameter.dtype)
                yield
            finally:
                for parameter, data in zip(parameters, own, strict=True):
                    parameter.data = data
                for buffer, before in zip(buffers, kept, strict=True):
                    buffer.copy_(before)

    def _check(self, size: int) -> None:
        if size != len(self.value):
            raise ValueError(
                f"model: expected the one the objective was made with, of {len(self.value)} weights, got one "
                f"of {size}; make an objective with this model"
            )


def _flat(model: nn.Module) -> list[Tensor]:
    return [parameter.data.flatten() for parameter in model.parameters()]
