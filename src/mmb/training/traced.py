"""Gradients with derivatives of derivatives in them, compiled as one graph.

`torch.compile` compiles a network and its derivative, and no more: the exact gradient of compositional
training differentiates the network twice. So its tensor operations are recorded as they are computed,
derivatives and all, and what was recorded is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from mmb.auc import Batch
from mmb.auc.objective import Objective


class TracedBackward:
    """`objective.backward(model, batch)` of one batch, whose values change in place, as a compiled graph.

    The first call computes as usual and records; later ones run what was recorded on the values that
    weights, block state and batch have then. Whatever is no tensor, such as the step size of the copies,
    stays as it was at the first call.

    Args:
        objective: The objective.
        model: The network.
    """

    def __init__(self, objective: Objective, model: nn.Module) -> None:
        self._objective, self._model = objective, model
        modules = (model, objective)
        self._weights = [
            weight for module in modules for weight in module.parameters() if weight.requires_grad
        ]
        self._graph: Callable[[], tuple[dict[str, Tensor], list[Tensor | None]]] | None = None

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """Set `.grad`, which must be None before, and move the block state; returns numbers worth logging.

        Args:
            batch: The same object at every call.
        """
        if self._graph is None:
            return self._record(batch)
        with torch.no_grad(), torch.autocast(self._weights[0].device.type, enabled=False):
            numbers, gradients = self._graph()
        for weight, gradient in zip(self._weights, gradients, strict=True):
            weight.grad = gradient
        return numbers

    def _record(self, batch: Batch) -> dict[str, Tensor]:
        numbers: dict[str, Tensor] = {}

        def estimate() -> Any:
            numbers.update(self._objective.backward(self._model, batch))
            return numbers, [weight.grad for weight in self._weights]

        with torch.autograd.set_multithreading_enabled(False):  # a backward thread would not be recorded
            self._graph = torch.compile(make_fx(estimate)(), dynamic=False)
        return numbers
