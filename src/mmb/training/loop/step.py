"""One training step: the objective fills `.grad`, the optimizer moves the weights.

With small networks, a GPU waits for kernels to be launched. `CapturedStep` records the kernels of a step
once, as a CUDA graph, and from then on launches them all at once.
"""

import copy
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mmb.auc import Batch, DenseBatch
from mmb.cuda_graphs import Captured, CudaGraph, Recorder, WaitsError, first_line, kind_of
from mmb.models import MultiTask
from mmb.training.loop.capture import not_captured
from mmb.training.loop.compiled_backward import CompiledBackward
from mmb.training.loop.kept_kernels import kept_kernels, step_name
from mmb.training.loop.setup import Setup
from mmb.training.recipes.recipe import SamplerSettings

BatchEstimate = Callable[[Batch], dict[str, Tensor]]  # adds to `.grad`, returns numbers worth logging
WORTH_COMPILING = 5_000  # steps: compiling takes up to a minute, and saves some milliseconds of each


class Step:
    """A plain step, kernel by kernel."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._clip = setup.recipe.optimizer.clip

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """Take a step on a batch; returns numbers worth logging, left on the device."""
        return self._estimate_and_move(partial(self.setup.objective.backward, self.setup.model), batch)

    def _estimate_and_move(self, estimate: BatchEstimate, batch: Batch) -> dict[str, Tensor]:
        self.setup.optimizer.zero_grad()
        with self.setup.autocast():
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

    A graph works on fixed addresses, so each batch is copied to where the first one was. Batches of another
    shape (the last of an epoch, graphs that do not fit) take the plain step.

    Args:
        setup: The parts of the run.
        compile: Whether kernels are compiled, too: the network for batches of rows; the whole estimate in
            compositional training, which differentiates the network twice.
        failed: Called with the error if the step cannot be captured; plain steps follow. None raises it.
        not_compiled: Called with the error if the compiled step cannot be captured; one that is not compiled
            is tried next.
        recorder: Makes what records on the device.
    """

    def __init__(
        self,
        setup: Setup,
        compile: bool = True,
        failed: Callable[[Exception], None] | None = None,
        not_compiled: Callable[[Exception], None] = lambda error: None,
        recorder: Callable[[torch.device], Recorder] = CudaGraph,
    ) -> None:
        super().__init__(setup)
        assert isinstance(setup.recipe.sampler, SamplerSettings)  # others are not captured
        self._rows = min(setup.recipe.sampler.batch_size, len(setup.dataset.split["train"]))
        self._compiles, self._failed, self._not_compiled = compile, failed, not_compiled
        self._recorder = recorder
        self.captured = self._capture()

    def _capture(self) -> Captured:
        """What is to be captured, compiled or not."""
        setup = self.setup
        estimate: BatchEstimate = partial(setup.objective.backward, setup.model)
        step = partial(self._estimate_and_move, estimate)
        if self._compiles:
            step = partial(self._compiled_step, compiled_estimate(setup))
        return Captured(
            step,
            super().__call__,
            recorder=self._recorder,
            failed=None if self._failed is None else self._on_failure,
            state=lambda: (*setup.model.state_dict().values(), *setup.objective.state_dict().values()),
        )

    def _compiled_step(self, estimate: BatchEstimate, batch: Batch) -> dict[str, Tensor]:
        modules = (self.setup.model, self.setup.objective)
        with kept_kernels(step_name(modules, kind_of(batch), self.setup.precision)):
            return self._estimate_and_move(estimate, batch)

    def _on_failure(self, error: Exception) -> None:
        """Go one step back: from compiled to captured, from captured to plain."""
        assert self._failed is not None
        if not self._compiles or isinstance(error, WaitsError):
            self._failed(error)
            return
        self._compiles = False
        self._not_compiled(error)
        self.captured = self._capture()

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """As the plain step."""
        if isinstance(batch, DenseBatch) and len(batch.labels) != self._rows:
            return super().__call__(batch)  # the last of an epoch, whose shape is rare
        found: dict[str, Tensor] = self.captured(batch)
        return found


def compiled_estimate(setup: Setup) -> BatchEstimate:
    """The estimate with compiled kernels."""
    objective, model = setup.objective, setup.model
    if objective.weights_per_task:
        return CompiledBackward(objective, model)
    network: Any = model
    if setup.recipe.sampler.kind == "rows" and not objective.evaluates_model:
        network = torch.compile(model, dynamic=False)
    elif isinstance(model, MultiTask):  # what is done with its features depends on the objective or the tasks
        network = compiled_encoder(model)
    return partial(objective.backward, network)


def compiled_encoder(model: MultiTask) -> MultiTask:
    """The same model, with its own parameters, whose encoder is compiled."""
    network = copy.copy(model)
    encoder: Any = torch.compile(model.encoder, dynamic=False)
    network._modules = {**model._modules, "encoder": encoder}
    return network


def make_step(
    setup: Setup,
    say: Callable[[str], None] = warnings.warn,
    steps: int | None = None,
    recorder: Callable[[torch.device], Recorder] = CudaGraph,
) -> Step:
    """The step that the recipe chooses, for `steps` steps, by default all of the run.

    With `training.capture` of "auto", kernels are compiled if that saves more time than it takes. If that
    fails, a step is captured without; if it cannot be captured after all, it is computed kernel by kernel. A
    line says why.
    """
    if setup.capture_note:
        say(setup.capture_note)
    if not setup.captured:
        return Step(setup)
    if setup.recipe.training.capture != "auto":
        return CapturedStep(setup, recorder=recorder)
    worth_compiling = (setup.steps if steps is None else steps) >= WORTH_COMPILING
    return CapturedStep(
        setup,
        worth_compiling,
        lambda error: say(not_captured(first_line(error))),
        lambda error: say(f"steps are captured, but not compiled: {first_line(error)}"),
        recorder,
    )
