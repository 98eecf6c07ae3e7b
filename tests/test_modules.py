"""A module as x moves as its parameters written out."""

import pytest
import torch
from torch import nn

import mmb


def test_a_module_and_its_parameters_give_the_same_path():
    torch.manual_seed(0)  # nn.Linear draws from the global generator
    module = nn.Linear(3, 1).double()
    data = torch.randn(4, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def by_module(net, dual, lower, inputs):
        return (net(inputs).squeeze(-1) * dual).mean() - 0.5 * dual**2

    def by_hand(x, dual, lower, inputs):
        return ((inputs @ x["weight"].mT + x["bias"]).squeeze(-1) * dual).mean() - 0.5 * dual**2

    before = mmb.parameters_of(module)
    states = []
    for x0, upper in ((module, mmb.with_module(module, by_module)), (before, by_hand)):
        solver = mmb.Solver(mmb.Problem(upper, None, 4), lr=0.1, lr_dual=0.5)
        state = solver.init(x0, dual=torch.ones(4, dtype=torch.float64))
        mmb.solve(solver, state, sampler=mmb.BlockSampler(4, 2), batches=lambda b: (data[b], None), steps=10)
        states.append(state)
    torch.testing.assert_close(states[0].x, states[1].x)
    assert torch.equal(module.weight, before["weight"])  # the module is as it was
    module.load_state_dict(states[0].x)
    assert torch.equal(module.weight, states[0].x["weight"])


def test_auto_starts_from_a_module():
    module = nn.Linear(2, 1).double()
    problem = mmb.Problem(mmb.with_module(module, lambda net, a, y, b: (net(b) - 1).square().sum()), None, 4)
    data = torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    draw = {"batches": lambda blocks: (data[blocks], None), "blocks_per_step": 2}
    _, state = mmb.auto(problem, module, **draw, print=None)
    assert state.x.keys() == {"weight", "bias"}


def test_a_module_without_parameters():
    with pytest.raises(ValueError, match=r"module.*parameters"):
        mmb.parameters_of(nn.ReLU())
