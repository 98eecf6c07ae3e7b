"""The loop that runs a solver."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from mmb import validation
from mmb.diagnostics import Info
from mmb.solver import Solver
from mmb.state import State

Callback = Callable[[State, Info], bool | None]


@dataclass(frozen=True)
class Result:
    """What `solve` returns."""

    state: State
    info: Info | None  # of the last step; None if no step was made
    stopped: bool  # whether a callback asked to stop


def solve(
    solver: Solver,
    state: State,
    *,
    sampler: Iterable[Tensor],
    batches: Callable[[Tensor], tuple[Any, ...]],
    steps: int,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Run the solver.

    Args:
        solver: The solver.
        state: Where to start; changed in place.
        sampler: The blocks of each step: an iterable such as [`BlockSampler`][mmb.BlockSampler], or an
            iterator.
        batches: From the sampled blocks to `(upper_batch, lower_batch)`, the latter None without a lower
            level; or to `(upper_batch, lower_batch, weights)`, or also `samples` after these.
        steps: How many steps to make.
        callbacks: Called as `callback(state, info)` after every step; one that returns True ends the run.

    Returns:
        The state and the last step's numbers.

    Raises:
        TypeError: If an argument is of the wrong kind, or `batches` gives something else.
        ValueError: If `steps` is not a whole number of at least 0, or the sampler ends early; the state is
            then that of the last step.
    """
    validation.check_solve(sampler, batches, steps, callbacks)
    draws = iter(sampler)
    info = None
    for made in range(steps):
        try:
            blocks = next(draws)
        except StopIteration as end:
            raise ValueError(
                f"sampler: expected blocks for {steps} steps, but it ended after {made}; pass a longer one"
            ) from end
        blocks = blocks if solver.shard is None else solver.shard.own(blocks)
        found = batches(blocks)
        validation.check_batches(found)
        more = dict(zip(("weights", "samples"), found[2:], strict=False))
        info = solver.step(state, blocks, *found[:2], **more)
        answers = [callback(state, info) for callback in callbacks]
        if any(answers):
            return Result(state, info, stopped=True)
    return Result(state, info, stopped=False)
