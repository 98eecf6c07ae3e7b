"""An estimate with compiled kernels is that of the model itself."""

from functools import partial

import torch

from mmb.training.loop.compiled_estimate import compiled_encoder
from mmb.training.loop.setup import make_setup
from tiny_runs import tiny_recipe


def test_a_compiled_encoder_has_the_weights_of_the_model(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))  # no compiler needed
    setup = make_setup(tiny_recipe("auc-ct-heads", model={"dropout": 0.0}))
    batch, names = next(iter(setup.feed)), list(setup.model.state_dict())
    network, found = compiled_encoder(setup.model), []
    for model in (setup.model, network):
        setup.optimizer.zero_grad()
        setup.objective.eval().backward(model, batch)
        found.append([weight.grad.clone() for weight in setup.model.parameters()])
    for plain, compiled in zip(*found, strict=True):
        torch.testing.assert_close(compiled, plain)
    assert network.encoder is not setup.model.encoder
    assert list(setup.model.state_dict()) == names
