"""An estimate with compiled kernels is that of the model and the objective themselves."""

from functools import partial
from itertools import islice

import pytest
import torch

from capture_cases import CASES
from mmb.training.loop.compiled_estimate import compiled_encoder, compiled_estimate
from mmb.training.loop.setup import make_setup
from tiny_runs import tiny_recipe


@pytest.fixture(autouse=True)
def no_compiler_needed(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=noting))
    SEEN.clear()


SEEN = []


def noting(graph, inputs, options=None):
    SEEN.append(graph)
    return graph


@pytest.mark.parametrize(
    ("method", "kind"), [case for case in [*CASES, ("sum", "rows")] if case[0] != "auc-ct"]
)
def test_it_is_the_same(method, kind, monkeypatch):
    """Gradients, numbers and block state of some batches; nothing but a derivative is left to Python."""
    if method != "sum":
        monkeypatch.setattr(torch, "compile", partial(torch.compile, fullgraph=True))
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        setup = make_setup(tiny_recipe(method, model={"dropout": 0.0}, sampler={"kind": kind}))
        setup.objective.can_raise = False  # as on a GPU
        setup.objective.reserve(64)
        parts = setup.objective, setup.model
        estimate = (
            compiled_estimate(*parts, kind == "rows") if compiled else partial(parts[0].backward, parts[1])
        )
        numbers = []
        for batch in islice(setup.feed, 3):
            setup.optimizer.zero_grad()
            numbers.append(estimate(batch))
            setup.optimizer.step()
        found.append([numbers, [part.state_dict() for part in parts]])
        assert "measure" not in vars(setup.objective)
    torch.testing.assert_close(*found)


def test_a_compiled_encoder_belongs_to_the_model():
    setup = make_setup(tiny_recipe("auc-ct-heads"))
    network, names = compiled_encoder(setup.model), list(setup.model.state_dict())
    assert network.encoder is not setup.model.encoder
    assert all(one is two for one, two in zip(network.parameters(), setup.model.parameters(), strict=True))
    assert list(setup.model.state_dict()) == names


def test_every_run_of_a_process_is_compiled():
    """The compiler gives up after eight variants of a function."""
    for number in range(10):
        setup = make_setup(tiny_recipe("pauc", objective={"margin": 1 + 0.1 * number}))
        compiled_estimate(setup.objective, setup.model, by_rows=True)(next(iter(setup.feed)))
    assert len(SEEN) == 20  # the network and the objective of each
