"""One training step: the objective fills `.grad`, the optimizer moves the weights.

On a GPU, small networks leave the device waiting for the next kernel to be launched. `CapturedStep` records
the kernels of a step once, as a CUDA graph, and launches them all at once from then on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mmb.auc import Batch, DenseBatch
from mmb.training.loop.compiled_backward import CompiledBackward
from mmb.training.loop.setup import Setup
from mmb.training.runs.scoring import autocast
from mmb.trees import tensors

BatchEstimate = Callable[[Batch], dict[str, Tensor]]  # adds to `.grad`, returns numbers worth logging
_WARM_UP = 3  # steps before capture, in which kernels are compiled and the optimizer makes its state


class Step:
    """A plain step of a setup, kernel by kernel.

    Args:
        setup: The parts of the run.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._clip = setup.recipe.optimizer.clip
        self._precision = getattr(torch, setup.recipe.training.precision)

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """Take a step on a batch; returns numbers worth logging, left on the device."""
        return self._estimate_and_move(partial(self.setup.objective.backward, self.setup.model), batch)

    def _estimate_and_move(self, estimate: BatchEstimate, batch: Batch) -> dict[str, Tensor]:
        self.setup.optimizer.zero_grad()
        with autocast(self.setup.dataset.device, self._precision):
            numbers = estimate(batch)
        if self._clip is not None:
            numbers["gradient_norm"] = self._clip_gradients(self._clip)
        self.setup.optimizer.step()
        return numbers

    def _clip_gradients(self, limit: float) -> Tensor:
        """Scale all gradients so that their norm, over all processes, is within a limit; returns the norm."""
        norm = self.setup.objective.gradient_norm(self.setup.model)
        parameters = [*self.setup.model.parameters(), *self.setup.objective.parameters()]
        nn.utils.clip_grads_with_norm_(parameters, limit, norm)
        return norm


class CapturedStep(Step):
    """The same step with all its kernels launched as one CUDA graph.

    What is captured is compiled, too: for batches of rows the network, in compositional training, which
    differentiates it twice, the whole estimate. A graph works on fixed addresses, so each batch is copied to
    where the first one was. Batches of another shape than that one (the last of an epoch, graphs that do not
    fit) take the plain step.

    Args:
        setup: The parts of the run, on a GPU, with an optimizer that can be captured.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._estimate: BatchEstimate
        if setup.objective.weights_per_task:
            self._estimate = CompiledBackward(setup.objective, setup.model)
        else:
            network: Any = setup.model
            if setup.recipe.sampler.kind == "rows":
                compiled = compiled_encoder if setup.objective.evaluates_model else compiled_model
                network = compiled(setup.model)
            self._estimate = partial(setup.objective.backward, network)
        self._stream = torch.cuda.Stream(setup.dataset.device)  # type: ignore[no-untyped-call]
        self._warm = 0
        self._batch: Batch | None = None
        self._rows = min(setup.recipe.sampler.batch_size, len(setup.dataset.split["train"]))
        self._graph = torch.cuda.CUDAGraph()
        self._numbers: dict[str, Tensor] = {}

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """Take a step on a batch; returns numbers worth logging, left on the device."""
        if self._batch is None:
            if isinstance(batch, DenseBatch) and len(batch.labels) != self._rows:
                return super().__call__(batch)  # the last of an epoch: none of the others has its shape
            self._batch = batch
        places, values = list(tensors(self._batch)), list(tensors(batch))
        if [place.shape for place in places] != [value.shape for value in values]:
            return super().__call__(batch)
        for place, value in zip(places, values, strict=True):
            if place is not value:
                place.copy_(value, non_blocking=True)
        if self._warm < _WARM_UP:
            self._warm += 1
            return self._on_the_side(self._batch)
        if not self._numbers:
            self._capture(self._batch)
        self._graph.replay()
        return {name: value.clone() for name, value in self._numbers.items()}

    def _on_the_side(self, batch: Batch) -> dict[str, Tensor]:
        """A real step on another stream, as capture needs before it."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            numbers = self._estimate_and_move(self._estimate, batch)
        torch.cuda.current_stream().wait_stream(self._stream)
        return numbers

    def _capture(self, batch: Batch) -> None:
        """Record a step; nothing is computed, and gradients are made anew in the memory of the graph."""
        with torch.cuda.graph(self._graph, stream=self._stream):
            self._numbers = self._estimate_and_move(self._estimate, batch)


def compiled_encoder(model: nn.Module) -> nn.Module:
    """The same model, with its own parameters, whose encoder is compiled."""
    network = copy.copy(model)
    encoder: Any = torch.compile(model.get_submodule("encoder"), dynamic=False)
    network._modules = {**model._modules, "encoder": encoder}
    return network


def compiled_model(model: nn.Module) -> Any:
    """The same model, compiled."""
    return torch.compile(model, dynamic=False)


def make_step(setup: Setup) -> Step:
    """The step that the recipe asks for."""
    return CapturedStep(setup) if setup.recipe.training.capture else Step(setup)
