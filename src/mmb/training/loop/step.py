"""One training step: the objective fills `.grad`, the optimizer moves the weights.

With small networks, a GPU waits for kernels to be launched. `CapturedStep` records the kernels of a step
once, as a CUDA graph, and from then on launches them all at once.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from mmb.auc import Batch, DenseBatch
from mmb.cuda_graphs import Captured, CudaGraph, Recorder, WaitsError, kind_of
from mmb.training.loop.compiled_estimate import BatchEstimate, compiled_estimate
from mmb.training.loop.kept_kernels import kept_kernels, step_name
from mmb.training.loop.setup import Setup
from mmb.training.recipes.recipe import SamplerSettings


class Step:
    """A plain step, kernel by kernel.

    Attributes:
        unusual: Whether the last one took longer than others do, because it was compiled or recorded.
    """

    unusual = False

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

    def close(self) -> None:
        """End what this has started, after the last step."""


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

    @property
    def compiled(self) -> bool:
        """Whether calls replay a recording of compiled kernels."""
        return self._compiles and self.captured.recorded

    def _capture(self) -> Captured:
        """What is to be captured, compiled or not."""
        setup = self.setup
        estimate: BatchEstimate = partial(setup.objective.backward, setup.model)
        step = partial(self._estimate_and_move, estimate)
        if self._compiles:
            estimate = compiled_estimate(setup.objective, setup.model, setup.by_rows)
            step = partial(self._compiled_step, estimate)
        return Captured(
            step,
            super().__call__,
            recorder=self._recorder,
            failed=None if self._failed is None else self._on_failure,
            state=lambda: (*setup.model.state_dict().values(), *setup.objective.state_dict().values()),
        )

    def _compiled_step(self, estimate: BatchEstimate, batch: Batch) -> dict[str, Tensor]:
        with kept_kernels(self.name(batch)):
            return self._estimate_and_move(estimate, batch)

    def name(self, batch: Batch) -> str:
        """Under which its compiled kernels are kept."""
        return step_name((self.setup.model, self.setup.objective), kind_of(batch), self.setup.precision)

    def _on_failure(self, error: Exception) -> None:
        """Go one step back: from compiled to captured, from captured to plain."""
        assert self._failed is not None
        if not self._compiles or isinstance(error, WaitsError):
            self._failed(error)
        else:
            self._leave_compiled(error)

    def _leave_compiled(self, error: Exception) -> None:
        self._compiles = False
        self._not_compiled(error)
        self.captured = self._capture()

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """As the plain step."""
        if isinstance(batch, DenseBatch) and len(batch.labels) != self._rows:
            return super().__call__(batch)  # the last of an epoch, whose shape is rare
        found: dict[str, Tensor] = self.captured(batch)
        return found
