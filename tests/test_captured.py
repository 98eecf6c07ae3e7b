"""The captured loop makes the steps of the plain one."""

import pytest
import torch

import mmb
from mmb.problems import Quadratic

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]
SOLVERS = {
    "v1": (lambda: mmb.MomentumHessian(0.5), {}),
    "v2, decaying": (lambda: mmb.QuadraticSGD(lambda step: 0.2 / (1 + 0.1 * step)), {}),
    "drawing": (lambda: mmb.Neumann(5, 10.0), {}),
    "STORM": (lambda: mmb.QuadraticSGD(0.2), {"variance_reduction": "storm"}),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", SOLVERS)
def test_steps_are_those_of_solve(kind, device, monkeypatch):
    monkeypatch.setattr("mmb.captured.AT_A_TIME", 8)
    known = Quadratic(12, torch.Generator().manual_seed(0))
    estimator, options = SOLVERS[kind]
    data = mmb.trees.tree_map(lambda leaf: leaf.to(device), known.exact(torch.arange(12)))

    def batches(blocks):
        return tuple(mmb.trees.gather(part, blocks.to(device)) for part in data)

    states = []
    for run in (mmb.solve, mmb.solve_captured):
        solver = mmb.Solver(
            known.problem,
            estimator(),
            lr=lambda step: 0.1 / (1 + step),
            lr_dual=0.2,
            lr_lower=0.2,
            beta=0.5,
            z_start="estimate",
            check_every=0,
            **options,
        )
        start = (leaf.to(device) for leaf in (known.x0, known.dual0, known.lower0))
        x, dual, lower = start
        state = solver.init(x, dual=dual, lower=lower)
        run(solver, state, sampler=mmb.BlockSampler(12, 4, 1), batches=batches, steps=20)
        states.append(state)
    plain, captured = (state.state_dict() for state in states)
    torch.testing.assert_close(captured, plain, rtol=1e-10, atol=1e-12)


def test_what_cannot_be_captured_is_said_before_anything_moves():
    known = Quadratic(4, torch.Generator().manual_seed(0))
    batches = known.batches(4, torch.Generator().manual_seed(1))
    arguments = {"batches": batches, "steps": 5, "sampler": mmb.BlockSampler(4, 2)}
    solver, state = mmb.auto(
        known.problem,
        known.x0,
        dual=known.dual0,
        lower=known.lower0,
        batches=batches,
        blocks_per_step=2,
        print=None,
    )
    with pytest.raises(ValueError, match=r"solver.*mmb\.auto.*mmb\.solve"):
        mmb.solve_captured(solver, state, **arguments)
    assert state.step == 0
    rates = {"lr": 0.1, "lr_dual": 0.1, "lr_lower": 0.1}
    numbered = mmb.Solver(known.problem, mmb.QuadraticSGD(0.1), **rates, variance_reduction=mmb.Saga(1, 2))
    state = numbered.init(known.x0, dual=known.dual0, lower=known.lower0)
    with pytest.raises(ValueError, match=r"solver.*mmb\.Saga.*mmb\.solve"):
        mmb.solve_captured(numbered, state, **arguments)
    plain = mmb.Solver(known.problem, mmb.QuadraticSGD(0.1), **rates)
    state = plain.init(known.x0, dual=known.dual0, lower=known.lower0)
    with pytest.raises(ValueError, match=r"sampler.*ended"):
        mmb.solve_captured(plain, state, **arguments | {"sampler": [torch.tensor([0, 1])] * 4})
