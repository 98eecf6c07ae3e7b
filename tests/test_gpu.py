"""The same steps on a GPU give the same answers; runs only where there is one."""

import pytest
import torch

import mmb
from quadratics import Quadratic
from test_solver import started, v1, v2

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("make", [v1, v2])
def test_solver_steps_equal_the_cpu(make, compile):
    states = {}
    for device in ("cpu", "cuda"):
        quadratic = Quadratic.make()
        on_device = Quadratic(**{name: tensor.to(device) for name, tensor in vars(quadratic).items()})
        solver, _ = started(make(compile=compile and device == "cuda"), quadratic)
        x, dual, lower = (tensor.to(device) for tensor in quadratic.start())
        state = solver.init(x, dual=dual, lower=lower)
        sampler = mmb.BlockSampler(6, 2)
        mmb.solve(solver, state, sampler=sampler, batches=on_device.batches, steps=20)
        states[device] = state
    for name in ("x", "dual", "lower", "memory", "z"):
        on_cpu = mmb.trees.tree_map(lambda leaf: leaf.cpu(), getattr(states["cuda"], name))
        torch.testing.assert_close(on_cpu, getattr(states["cpu"], name), rtol=1e-9, atol=1e-11)
