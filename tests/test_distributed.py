"""Blocks divided among real processes on loopback: the same path as one, and no hang when one breaks."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import mmb
from mmb.distributed import Shard
from processes import in_processes
from quadratics import Quadratic

ESTIMATORS = {
    "momentum_hessian": lambda: mmb.MomentumHessian(beta=0.6),
    "quadratic_sgd": lambda: mmb.QuadraticSGD(lr=0.3, radius=2.0),
    "first_order": lambda: mmb.FirstOrder(penalty=20.0, lr=0.3),
}


def run_solver(name: str, shard: Shard | None, poison: int | None = None) -> mmb.State:
    quadratic = Quadratic.make(blocks=7)
    solver = mmb.Solver(
        quadratic.problem(project_dual=mmb.projections.nonnegative()),
        ESTIMATORS[name](),
        lr=0.05,
        lr_dual=0.4,
        lr_lower=0.3,
        beta=0.3,
        shard=shard,
    )
    x, dual, lower = quadratic.start()
    if shard is not None:
        dual, lower = shard.take((dual, lower))
    state = solver.init(x, dual=dual, lower=lower)

    def batches(blocks):
        upper, lower = quadratic.batches(blocks)
        if poison is not None and state.step == 3:
            upper["t"] = torch.where((blocks == poison)[:, None], torch.nan, upper["t"])
        return upper, lower

    mmb.solve(solver, state, sampler=mmb.BlockSampler(7, 3, 5), batches=batches, steps=12)
    return state


def plain(state: mmb.State) -> list:
    """The state as nested lists, which cross to another process by value."""
    tensors = [state.x, state.z, state.dual, state.lower, *state.memory.values()]
    return [tensor.tolist() for tensor in tensors]


def solve_all() -> dict:
    return {name: plain(run_solver(name, Shard.of_this_process(7))) for name in ESTIMATORS}


@pytest.mark.parametrize("world", [2, 4])
def test_any_number_of_processes_takes_the_same_path(world):
    answers = in_processes(world, solve_all)
    for name in ESTIMATORS:
        x, z, *blocks = plain(run_solver(name, None))
        for answer in answers:
            torch.testing.assert_close(
                torch.tensor(answer[name][:2]), torch.tensor([x, z]), rtol=1e-10, atol=1e-12
            )
        for number, expected in enumerate(blocks, start=2):
            joined = [row for answer in answers for row in answer[name][number]]  # m / N blocks each
            torch.testing.assert_close(torch.tensor(joined), torch.tensor(expected), rtol=1e-10, atol=1e-12)


def break_one() -> str:
    try:
        run_solver("quadratic_sgd", Shard.of_this_process(7), poison=6)
    except mmb.BrokenStepError as error:
        return f"{error.quantity} {error.block}"
    return "finished"


def test_one_broken_process_stops_all_with_a_message():
    """Block 6, of the last process, meets NaN at some step; nobody is left waiting."""
    quadratic_draws = iter(mmb.BlockSampler(7, 3, 5))
    assert 6 in [next(quadratic_draws) for _ in range(4)][3]  # it is drawn at the poisoned step
    assert in_processes(2, break_one) == ["broken_peers None", "values 6"]


@pytest.mark.parametrize(("blocks", "world"), [(7, 3), (5, 4), (8, 2), (2, 4)])
def test_shards_divide_blocks_as_torch_chunk_does(blocks, world, monkeypatch):
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda group: world)
    shards = []
    for rank in range(world):
        monkeypatch.setattr(dist, "get_rank", lambda group, rank=rank: rank)
        shards.append(Shard.of_this_process(blocks))
    sizes = [len(part) for part in torch.arange(blocks).chunk(world)]
    assert [len(shard) for shard in shards] == sizes + [0] * (world - len(sizes))
    everything = torch.cat([shard.take(torch.arange(blocks)) for shard in shards])
    assert torch.equal(everything, torch.arange(blocks))
    drawn = torch.randperm(blocks, generator=torch.Generator().manual_seed(0))
    assert sorted(torch.cat([shard.own(drawn) for shard in shards]).tolist()) == list(range(blocks))


def test_without_processes_there_is_a_clear_error():
    with pytest.raises(RuntimeError, match="torchrun"):
        Shard.of_this_process(7)


def test_a_block_of_another_process_is_refused():
    quadratic = Quadratic.make(blocks=7)
    shard = Shard(7, start=3, stop=5)
    solver = mmb.Solver(quadratic.problem(), mmb.Exact(), lr=0.1, lr_dual=0.1, lr_lower=0.1, shard=shard)
    x, dual, lower = quadratic.start()
    with pytest.raises(ValueError, match=r"dual.*shard.* 2\b.*\(7, 2\)"):
        solver.init(x, dual=dual, lower=lower)
    state = solver.init(x, dual=dual[3:5], lower=lower[3:5])
    blocks = torch.tensor([5])
    with pytest.raises(ValueError, match=r"blocks.*3 to 4.*process.*\[5\]"):
        solver.step(state, blocks, *quadratic.batches(blocks))
