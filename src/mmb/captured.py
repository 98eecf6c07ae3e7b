"""The loop that runs a solver as a recorded graph: on a GPU, no step waits for Python."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from mmb import validation
from mmb.cuda_graphs import WARM_UP, CudaGraph
from mmb.solver import Solver
from mmb.state import State
from mmb.step_values import StepSizes
from mmb.trees import tree_leaves

AT_A_TIME = 10_000  # steps whose blocks and step sizes lie on the device


@torch.no_grad()
def solve_captured(
    solver: Solver,
    state: State,
    *,
    sampler: Iterable[Tensor],
    batches: Callable[[Tensor], tuple[Any, ...]],
    steps: int,
) -> State:
    """Run the solver as `mmb.solve` does; on a GPU, record a step once and replay it.

    A small step takes longer in Python than on the device. Blocks and step sizes are brought there ahead of
    time, and the step with its `batches` is recorded as a CUDA graph. On a CPU the same steps are made one by
    one. After the first few, steps are not checked: look at the result.

    Args:
        solver: The solver: no `optimizer`, no `shard`, no `mmb.Saga` with several batches, and not made by
            `mmb.auto`.
        state: Where to start; changed in place.
        sampler: The blocks of each step, always as many.
        batches: As in `mmb.solve`, from blocks on the device, by operations on the device alone; weights and
            samples are not taken.
        steps: How many steps to make.

    Returns:
        The state.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If the solver cannot be captured, or the sampler ends early.
    """
    validation.check_solve(sampler, batches, steps, ())
    _check(solver)
    device, draws = state.last_visit.device, iter(sampler)
    for blocks in _taken(draws, min(WARM_UP, steps)):
        found = batches(blocks.to(device))
        validation.check_batches(found)
        solver.step(state, blocks.to(device), *found[:2])
    left = steps - min(WARM_UP, steps)
    while left:
        count = min(left, AT_A_TIME)
        _replay(solver, state, torch.stack(_taken(draws, count)).to(device), batches)
        left -= count
    return state


def _check(solver: Solver) -> None:
    own = {
        "the solver that mmb.auto makes": type(solver) is not Solver,
        "optimizer": solver.optimizer is not None,
        "shard": solver.shard is not None,
        "mmb.Saga with several batches": solver.variance_reduction is not None
        and max(map(solver.variance_reduction.batches, ("upper", "lower"))) > 1,
    }
    for name, found in own.items():
        if found:
            raise ValueError(f"solver: expected one that can be captured, got {name}; run it with mmb.solve")


def _taken(draws: Any, count: int) -> list[Tensor]:
    found = list(islice(draws, count))
    if len(found) < count:
        raise ValueError(
            f"sampler: expected blocks for {count} more steps, but it ended after {len(found)}; pass more"
        )
    return found


def _replay(solver: Solver, state: State, blocks: Tensor, batches: Callable[[Tensor], Any]) -> None:
    """Make as many steps as there are rows of blocks."""
    device, (count, sampled) = blocks.device, blocks.shape
    numbers = range(state.step, state.step + count)
    names = list(solver._rates(state.step).estimator)
    table = torch.tensor([_row(solver._rates(number)) for number in numbers], dtype=torch.float64)
    table = table.to(device)
    draws = None
    if solver.hypergradient is not None:
        made = [solver.hypergradient.draw(sampled, state.generator) for _ in numbers]
        draws = None if made[0] is None else torch.stack([one for one in made if one is not None]).to(device)
    place = torch.zeros(1, dtype=torch.long, device=device)

    def step() -> None:
        def now(rows: Tensor) -> Tensor:
            return rows.index_select(0, place).squeeze(0)

        chosen, (x, beta, dual, lower, *own) = now(blocks), now(table).unbind()
        rates = StepSizes(x, beta, dual, lower, dict(zip(names, own, strict=True)))
        draw = None if draws is None else now(draws)
        update = solver._look(state, chosen, batches(chosen)[:2], None, None, draw, rates)
        solver._write(state, chosen, None, update)
        state.last_visit.index_copy_(0, chosen, (place + numbers[0]).expand(sampled))
        place.add_(1)

    if device.type == "cuda":
        _record_and_replay(step, place, state, count)
    else:
        for _ in range(count):
            step()
    state.step += count


def _record_and_replay(step: Callable[[], None], place: Tensor, state: State, count: int) -> None:
    """Warm up, put everything back, record, and replay."""
    changed = [place, *tree_leaves(_variables(state))]
    before = [leaf.clone() for leaf in changed]

    def warm_up() -> None:
        for _ in range(min(WARM_UP, count)):
            step()
        for leaf, old in zip(changed, before, strict=True):
            leaf.copy_(old)

    graph = CudaGraph(place.device)
    graph.run(warm_up)
    _, replay = graph.record(step)
    for _ in range(count):
        replay()


def _variables(state: State) -> dict[str, Any]:
    """All tensors of a state that a step changes."""
    parts = ("x", "z", "dual", "lower", "memory", "last_visit", "shared")
    return {name: part for name in parts if (part := getattr(state, name)) is not None}


def _row(rates: StepSizes) -> list[float]:
    return [float(rate) for rate in (*rates[:4], *rates.estimator.values())]
