"""Which step a run takes: plain, captured, compiled."""

import warnings
from collections.abc import Callable

import torch

from mmb.cuda_graphs import CudaGraph, Recorder, first_line
from mmb.training.loop.capture import not_captured
from mmb.training.loop.compiled_later import CompiledLater
from mmb.training.loop.setup import Setup
from mmb.training.loop.step import CapturedStep, Step

WORTH_COMPILING = 5_000  # steps: kernels are ready after up to a minute, and save some milliseconds of each


def make_step(
    setup: Setup,
    say: Callable[[str], None] = warnings.warn,
    steps: int | None = None,
    recorder: Callable[[torch.device], Recorder] = CudaGraph,
    note: Callable[[str], None] = lambda message: None,
) -> Step:
    """The step that the recipe chooses, for the last `steps` of the run, by default all; close it afterwards.

    With `training.capture` of "auto", kernels are compiled in the background if that saves more time than it
    takes. If that fails, a step stays captured without; if it cannot be captured after all, it is computed
    kernel by kernel. A line (`say`) says why; others (`note`) say what is done.
    """
    if setup.capture_note:
        say(setup.capture_note)
    if not setup.captured:
        return Step(setup)
    if setup.recipe.training.capture != "auto":
        return CapturedStep(setup, recorder=recorder)
    left = setup.steps if steps is None else steps

    def failed(error: Exception) -> None:
        say(not_captured(first_line(error)))

    def not_compiled(error: Exception) -> None:
        say(f"steps are captured, but not compiled: {first_line(error)}")

    if left < WORTH_COMPILING:
        return CapturedStep(setup, False, failed, not_compiled, recorder)
    return CompiledLater(setup, setup.steps - left, failed, not_compiled, note, recorder)
