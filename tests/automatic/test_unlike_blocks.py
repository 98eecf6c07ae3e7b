"""Blocks that differ, start far away, or follow x slowly."""

import pytest
import torch

import mmb
from mmb.automatic.curvature import curvature_ahead, least_curvature
from mmb.oracles import Oracles


def run(problem, x0, batches, sampled, steps, *, look=None, **options):
    """The solver and state of `mmb.auto` after some steps; `look` is called with x after each."""
    start = {"batches": batches, "blocks_per_step": sampled, "print": None} | options
    solver, state = mmb.auto(problem, x0, **start)
    sampler = mmb.BlockSampler(problem.num_blocks, sampled, 1)
    seen = [] if look is None else [lambda state, info: look(state.x)]
    mmb.solve(solver, state, sampler=sampler, batches=batches, steps=steps, callbacks=seen)
    return solver, state


def spread(count, low, high):
    """Numbers between two, evenly in their logarithm, in an order that hides the extremes from a probe."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(3))
    return torch.logspace(low, high, count, dtype=torch.float64)[order]


def test_duals_of_blocks_that_are_more_curved_than_those_looked_at():
    """One step size for all is up to a thousand times too long for some; F = mean (x - c)^2 / 2s."""
    curved = spread(300, -1, 2)
    problem = mmb.Problem(lambda x, a, y, b: a * (x - 2) - 0.5 * b * a**2, None, 300)
    start = torch.tensor(0.0, dtype=torch.float64)
    duals = torch.zeros(300, dtype=torch.float64)
    solver, state = run(problem, start, lambda blocks: (curved[blocks], None), 5, 300, dual=duals)
    assert not solver.findings.duals_alike
    assert float(state.x) == pytest.approx(2.0, abs=0.1)  # 0.5 off with one step size for all
    assert state.dual.abs().max() < 0.5


def test_lower_variables_of_blocks_that_are_more_curved_than_those_looked_at():
    curved = spread(300, 0, 2.5)
    problem = mmb.Problem(lambda x, a, y, b: 0.5 * (y - 2) ** 2, lambda x, y, b: 0.5 * b * (y - x) ** 2, 300)
    start, far = torch.tensor(0.0, dtype=torch.float64), []
    batches = lambda blocks: (curved[blocks], curved[blocks])  # noqa: E731
    lower = torch.zeros(300, dtype=torch.float64)
    look = lambda x: far.append(abs(float(x) - 2))  # noqa: E731
    run(problem, start, batches, 5, 300, lower=lower, look=look)
    assert max(far) < 4  # 6 with one step size for all
    assert far[-1] < 0.8


@pytest.mark.parametrize("size", [4, 40])  # with Hessians and with products alone
def test_lower_variables_that_start_very_far_away_and_move_slowly(size):
    """Of condition 10 and 1,000 times as far away as the solution: x stays where it belongs meanwhile."""
    curved, far = torch.linspace(1, 10, size, dtype=torch.float64), []
    problem = mmb.Problem(
        lambda x, a, y, b: 0.5 * (y - b).square().mean() + 0.5 * (x - 1) ** 2,
        lambda x, y, b: 0.5 * (curved * (y - x).square()).sum(),
        20,
    )
    batches = lambda blocks: (torch.ones(len(blocks), size).double(),) * 2  # noqa: E731
    lower = torch.full((20, size), 1e3, dtype=torch.float64)
    start = torch.tensor(0.5, dtype=torch.float64)
    look = lambda x: far.append(abs(float(x) - 1))  # noqa: E731
    run(problem, start, batches, 5, 60, lower=lower, look=look)
    assert max(far) < 1
    assert far[-1] < 0.1


def test_x_does_not_swing_around_slow_duals():
    """Duals of condition 50: as long as they lag behind, estimates agree, and x must not run away."""
    slow, far = torch.tensor([0.02, 0.1, 0.5, 1.0], dtype=torch.float64), []
    draw = torch.Generator().manual_seed(1000)
    matrix = torch.randn(4, 4, generator=draw, dtype=torch.float64)
    right = torch.randn(4, generator=draw, dtype=torch.float64)

    def f(x, a, y, b):
        return a @ (matrix @ x - right) - 0.5 * (slow * a * a).sum() + 0.01 * x @ x

    def value(x):
        return float(((matrix @ x - right).square() / slow).sum())

    start, duals = torch.zeros(4, dtype=torch.float64), torch.zeros(1, 4, dtype=torch.float64)
    batches = lambda blocks: (torch.ones(1), None)  # noqa: E731
    look = lambda x: far.append(value(x) / value(start))  # noqa: E731
    solver, _ = run(mmb.Problem(f, None, 1), start, batches, 1, 200, dual=duals, look=look)
    assert solver.findings.dual_concavity == pytest.approx(0.02, rel=0.01)
    assert max(far) < 1.2  # 28 if it waits for none
    assert far[-1] < 0.62


def test_the_least_curvature_of_many_lower_variables_is_found():
    curved = torch.logspace(-3, 0, 40, dtype=torch.float64)
    problem = mmb.Problem(
        lambda x, a, y, b: 0.5 * (y - b).square().sum(),
        lambda x, y, b: 0.5 * (curved * (y - x).square()).sum(),
        2,
    )
    batches = lambda blocks: (torch.ones(2, 40).double(),) * 2  # noqa: E731
    lower = torch.zeros(2, 40, dtype=torch.float64)
    start = {"lower": lower, "batches": batches, "blocks_per_step": 2, "print": None}
    solver, _ = mmb.auto(problem, torch.tensor(0.0, dtype=torch.float64), **start)
    assert 1e-3 <= solver.findings.lower_convexity < 2e-2
    assert solver.findings.lower_smoothness == pytest.approx(1, rel=0.1)


def test_extreme_curvatures():
    """Of matrices whose eigenvalues are known; one of them a multiple of the identity."""
    draw = torch.Generator().manual_seed(0)
    rotation = torch.linalg.qr(torch.randn(6, 6, generator=draw, dtype=torch.float64))[0]
    values = torch.tensor([[0.5, 1, 2, 3, 4, 5], [2.0] * 6], dtype=torch.float64)
    matrices = rotation @ torch.diag_embed(values) @ rotation.T
    product = lambda v: torch.bmm(matrices, v.unsqueeze(2)).squeeze(2)  # noqa: E731
    assert least_curvature(product, torch.zeros(2, 6).double(), draw) == pytest.approx(0.5)
    assert least_curvature(product, torch.zeros(2, 6).double(), draw) > 0
    problem = mmb.Problem(lambda x, a, y, b: x * y.sum(), lambda x, y, b: 0.5 * y @ b @ y, 2)
    lower = torch.randn(2, 6, generator=draw, dtype=torch.float64)
    at = Oracles(problem, torch.tensor(1.0).double(), None, lower, torch.zeros(2), matrices)
    ahead = curvature_ahead(at, at.lower_gradient, whole=True)
    assert ahead.tolist() == pytest.approx([5, 2], rel=0.1)
    once = curvature_ahead(at, at.lower_gradient, whole=False)
    assert 0.5 <= float(once[0]) <= 5
    assert float(once[1]) == pytest.approx(2)
