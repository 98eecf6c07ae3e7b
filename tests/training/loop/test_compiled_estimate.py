"""An estimate with compiled kernels is that of the model itself."""

from functools import partial

import pytest
import torch
from torch import nn

from mmb.training.loop.compiled_backward import CompiledBackward
from mmb.training.loop.compiled_estimate import can_be_compiled, compiled_encoder, compiled_estimate
from mmb.training.loop.setup import make_setup
from tiny_runs import tiny_recipe


@pytest.mark.parametrize(("method", "kind"), [("auc-ct-heads", "rows"), ("pauc", "tasks")])
def test_a_compiled_encoder_has_the_weights_of_the_model(method, kind, monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))  # no compiler needed
    setup = make_setup(tiny_recipe(method, model={"dropout": 0.0}, sampler={"kind": kind}))
    batch, names = next(iter(setup.feed)), list(setup.model.state_dict())
    network, found = compiled_encoder(setup.model), []
    compiled = compiled_estimate(setup.objective.eval(), setup.model, kind == "rows")
    for estimate in (partial(setup.objective.backward, setup.model), compiled):
        setup.optimizer.zero_grad()
        estimate(batch)
        found.append([weight.grad.clone() for weight in setup.model.parameters()])
    for plain, compiled in zip(*found, strict=True):
        torch.testing.assert_close(compiled, plain)
    assert network.encoder is not setup.model.encoder
    assert list(setup.model.state_dict()) == names


@pytest.mark.parametrize("kind", ["rows", "tasks"])
@pytest.mark.parametrize("method", ["pauc", "auc-ct", "auc-ct-heads"])
@pytest.mark.parametrize("own", [False, True])
def test_what_can_be_compiled_is(method, kind, own, monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda model, **_: compiled.append(model) or model)
    setup = make_setup(tiny_recipe(method, sampler={"kind": kind}))
    model = nn.Sequential(setup.model) if own else setup.model
    parts = (setup.objective, model, kind == "rows")
    estimate = compiled_estimate(*parts)
    assert can_be_compiled(*parts) == (bool(compiled) or isinstance(estimate, CompiledBackward))
    if not own:
        assert can_be_compiled(*parts)
