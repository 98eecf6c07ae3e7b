"""One training step: the objective fills `.grad`, the optimizer moves the weights.

With small networks, a GPU waits for kernels to be launched. `CapturedStep` records the kernels of a step
once, as a CUDA graph, and from then on launches them all at once.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mmb.auc import Batch, DenseBatch
from mmb.training.loop.compiled_backward import CompiledBackward
from mmb.training.loop.setup import Setup
from mmb.training.recipes.recipe import SamplerSettings
from mmb.training.runs.scoring import autocast
from mmb.trees import tensors

BatchEstimate = Callable[[Batch], dict[str, Tensor]]  # adds to `.grad`, returns numbers worth logging
_WARM_UP = 3  # steps on another stream before capture, to compile kernels and make the optimizer's state


class Step:
    """A plain step, kernel by kernel."""

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
            norm = self.setup.objective.gradient_norm(self.setup.model)  # over all processes
            parameters = [*self.setup.model.parameters(), *self.setup.objective.parameters()]
            nn.utils.clip_grads_with_norm_(parameters, self._clip, norm)
            numbers["gradient_norm"] = norm
        self.setup.optimizer.step()
        return numbers


class CapturedStep(Step):
    """The same step with all its kernels launched as one CUDA graph.

    The kernels are compiled, too: the network for batches of rows; the whole estimate in compositional
    training, which differentiates the network twice. A graph works on fixed addresses, so each batch is
    copied over the first one. Batches of another shape (the last of an epoch, graphs that do not fit) take
    the plain step.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._estimate: BatchEstimate
        if setup.objective.weights_per_task:
            self._estimate = CompiledBackward(setup.objective, setup.model)
        else:
            network: Any = setup.model
            if setup.recipe.sampler.kind == "rows" and setup.objective.evaluates_model:
                network = compiled_encoder(setup.model)
            elif setup.recipe.sampler.kind == "rows":
                network = torch.compile(setup.model, dynamic=False)
            self._estimate = partial(setup.objective.backward, network)
        self._stream = torch.cuda.Stream(setup.dataset.device)  # type: ignore[no-untyped-call]
        self._warm = 0
        self._batch: Batch | None = None
        assert isinstance(setup.recipe.sampler, SamplerSettings)  # others are not captured
        self._rows = min(setup.recipe.sampler.batch_size, len(setup.dataset.split["train"]))
        self._graph = torch.cuda.CUDAGraph()
        self._numbers: dict[str, Tensor] = {}

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """As the plain step."""
        if self._batch is None:
            if isinstance(batch, DenseBatch) and len(batch.labels) != self._rows:
                return super().__call__(batch)  # the last of an epoch, whose shape is rare
            self._batch = batch
        places, values = list(tensors(self._batch)), list(tensors(batch))
        if [place.shape for place in places] != [value.shape for value in values]:
            return super().__call__(batch)
        for place, value in zip(places, values, strict=True):
            if place is not value:
                place.copy_(value, non_blocking=True)
        if self._warm < _WARM_UP:
            self._warm += 1
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                numbers = self._estimate_and_move(self._estimate, self._batch)
            torch.cuda.current_stream().wait_stream(self._stream)
            return numbers
        if not self._numbers:  # record a step: nothing is computed, and the graph has its own gradients
            with torch.cuda.graph(self._graph, stream=self._stream):
                self._numbers = self._estimate_and_move(self._estimate, self._batch)
        self._graph.replay()
        return {name: value.clone() for name, value in self._numbers.items()}


def compiled_encoder(model: nn.Module) -> nn.Module:
    """The same model, with its own parameters, whose encoder is compiled."""
    network = copy.copy(model)
    encoder: Any = torch.compile(model.get_submodule("encoder"), dynamic=False)
    network._modules = {**model._modules, "encoder": encoder}
    return network


def make_step(setup: Setup) -> Step:
    """The step that the recipe chooses."""
    return CapturedStep(setup) if setup.recipe.training.capture else Step(setup)
