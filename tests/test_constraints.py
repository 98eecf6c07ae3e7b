"""Constraints per block: the dual closes them, and leaves the excess that the softness allows."""

import pytest
import torch

import mmb

LIMITS = torch.tensor([0.3, 2.0], dtype=torch.float64)


def solved(softness):
    """min (x - 1)^2 / 2 with x at most 0.3 in one block, and at most 2, which never binds, in the other."""
    upper = mmb.constrained(
        lambda x, lower, limit: 0.5 * (x - 1) ** 2, lambda x, lower, limit: x - limit, softness=softness
    )
    problem = mmb.Problem(upper, None, 2, mmb.projections.nonnegative())
    solver = mmb.Solver(problem, lr=0.05, lr_dual=0.2)
    state = solver.init(torch.zeros((), dtype=torch.float64), dual=torch.zeros(2, dtype=torch.float64))
    batches = lambda blocks: (LIMITS[blocks], None)  # noqa: E731
    mmb.solve(solver, state, sampler=mmb.BlockSampler(2, 2), batches=batches, steps=2000)
    return state


@pytest.mark.parametrize("softness", [0.5, 0.05])
def test_duals_close_what_binds(softness):
    state = solved(softness)
    # stationary: (x - 1) + dual / 2 = 0 with dual = (x - 0.3) / softness
    expected = (1 + 0.15 / softness) / (1 + 0.5 / softness)
    torch.testing.assert_close(float(state.x), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(state.dual[0] * softness, state.x - 0.3, atol=1e-6, rtol=0)
    assert state.dual[1] == 0


def test_bad_arguments():
    with pytest.raises(ValueError, match="softness"):
        mmb.constrained(lambda *_: 0, lambda *_: 0, softness=0)
    upper = mmb.constrained(lambda x, y, b: x, lambda x, y, b: torch.stack([x, x]))
    problem = mmb.Problem(upper, None, 2, mmb.projections.nonnegative())
    solver = mmb.Solver(problem, lr=0.1, lr_dual=0.1)
    state = solver.init(torch.zeros(()), dual=torch.zeros(2))
    with pytest.raises(ValueError, match=r"dual.*\(2,\).*got \(\)"):
        solver.step(state, torch.arange(2), torch.zeros(2))
