"""A captured step that is compiled while it trains.

It is captured as it is, so that training starts at once. Another process compiles its kernels meanwhile. When
they are ready, the step is captured again, with them.
"""

from collections.abc import Callable

import torch

from mmb.auc import Batch
from mmb.cuda_graphs import CudaGraph, Recorder, first_line, kind_of
from mmb.training.loop.background_compiler import BackgroundCompiler, Work
from mmb.training.loop.kept_kernels import is_kept
from mmb.training.loop.setup import Setup
from mmb.training.loop.step import CapturedStep

WORTH_SWITCHING = 1_000  # steps left: to capture compiled kernels takes seconds, too
_LONGEST = 1_800.0  # seconds that compiling may take


class CompiledLater(CapturedStep):
    """The step, from the first on that this process takes.

    Args:
        setup: The parts of the run.
        taken: Steps of the run that were taken before.
        failed: Called with the error if the step cannot be captured; plain steps follow.
        not_compiled: Called with the error if it cannot be compiled; it stays captured.
        note: Told of compiling, and of the switch.
        recorder: Makes what records on the device.
    """

    def __init__(
        self,
        setup: Setup,
        taken: int,
        failed: Callable[[Exception], None],
        not_compiled: Callable[[Exception], None],
        note: Callable[[str], None],
        recorder: Callable[[torch.device], Recorder] = CudaGraph,
    ) -> None:
        super().__init__(setup, False, failed, not_compiled, recorder)
        self._taken, self._note = taken, note
        self._noted = False  # whether there is a note about compiling; of what was kept, there is none
        self._compiler: BackgroundCompiler | None = None
        self._look: Callable[[], bool] | None = self._while_recording  # what is waited for, if anything

    def __call__(self, batch: Batch) -> dict[str, torch.Tensor]:
        """As the plain step; kernels are compiled for batches of the shape that was captured first."""
        self.unusual = False
        if self._look is not None and kind_of((batch,)) == kind_of(self.captured.inputs):
            self.unusual = self._look()
        self._taken += 1
        return super().__call__(batch)

    def close(self) -> None:
        """End the process that compiles."""
        self._look = None
        if self._compiler is not None:
            self._compiler.close()
            self._compiler = None

    def _while_recording(self) -> bool:
        """Have kernels compiled when the step is recorded; at once, if that takes seconds."""
        if not self.captured.recorded:
            return False
        (batch,), setup = self.captured.inputs, self.setup
        name = self.name(batch)
        if is_kept(name):
            return self._switch()
        work = Work(setup.model, setup.objective, batch, setup.by_rows, setup.precision)
        try:
            self._compiler = BackgroundCompiler(name, work)
        except Exception as error:
            self._say(f"steps are compiled now, which takes up to a minute: {first_line(error)}")
            return self._switch()
        self._say("steps are captured, and compiled in the background")
        self._look = self._while_compiling
        return True

    def _say(self, message: str) -> None:
        self._noted = True
        self._note(message)

    def _while_compiling(self) -> bool:
        """Go over to compiled kernels when they are ready."""
        assert self._compiler is not None
        left = self.setup.steps - self._taken
        if left < WORTH_SWITCHING:
            self.close()
            return False
        problem: str | None = f"it takes more than {_LONGEST / 60:.0f} minutes"
        if self._compiler.running:
            if self._compiler.seconds < _LONGEST:
                return False
        else:
            problem = self._compiler.problem()
        self.close()
        if problem is None:
            return self._switch()
        self._not_compiled(RuntimeError(problem))
        return False

    def _switch(self) -> bool:
        """Capture the step again, with compiled kernels."""
        self._compiles, self._look = True, self._while_switching
        self.captured = self._capture()
        self._switched_after = self._taken
        return True

    def _while_switching(self) -> bool:
        """Say that it is done."""
        if not self.captured.recorded:
            return True
        if self._noted:
            self._note(f"steps are compiled, from step {self._switched_after + 1:,} on")
        self._look = None
        return False

    def _on_failure(self, error: Exception) -> None:
        """Go one step back; whatever is wrong with compiled kernels, the step was captured without."""
        self._look = None
        if self._compiles:
            self._leave_compiled(error)
        else:
            super()._on_failure(error)
