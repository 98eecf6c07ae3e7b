"""The fused layers of GIN against the plain ones: on a GPU, or anywhere with TRITON_INTERPRET=1."""

from __future__ import annotations

import copy
import os
from functools import partial

import pytest
import torch

import mmb
from mmb.models import fused_layers, graph_isomorphism
from mmb.models.batch_norm import freeze_batch_norm, untracked_batch_norm
from mmb.models.graph_isomorphism import gin
from random_graphs import random_graphs

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
runs = pytest.mark.skipif(
    fused_layers.triton is None or not (ON_GPU or os.environ.get("TRITON_INTERPRET") == "1"),
    reason="needs Triton, and a GPU or its interpreter",
)


def batch_of(graphs=20, padding=7):
    """Graphs of one shape, with some padding."""
    store = random_graphs(graphs, torch.Generator().manual_seed(0), smallest=2)
    nodes, edges = store.sizes(torch.arange(graphs))
    return store.to(DEVICE).fixed(torch.arange(graphs, device=DEVICE), nodes + padding, edges + padding)


def network(width=12, virtual_node=False, dropout=0.0):
    """A network with random weights, none of them as at the start of training."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = gin(3, layers=3, width=width, dropout=dropout, virtual_node=virtual_node).to(DEVICE)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def step(model, batch):
    """What a step of training computes: outputs, gradients and statistics, by name."""
    output = model(batch)
    weight = torch.linspace(-1, 1, output.numel(), device=DEVICE).reshape(output.shape).to(output.dtype)
    (output * weight).sum().backward()
    found = {"output": output.detach(), **{name: p.grad for name, p in model.named_parameters()}}
    return found | dict(model.named_buffers())


@pytest.fixture
def fused(monkeypatch):
    monkeypatch.setattr(graph_isomorphism, "can_fuse", lambda layers, features, batch: True)


@runs
@pytest.mark.parametrize("virtual_node", [False, True])
@pytest.mark.parametrize("width", [12, 16])
def test_same_step_as_in_float64(width, virtual_node, monkeypatch):
    model, batch = network(width, virtual_node), batch_of()
    expected = step(copy.deepcopy(model).double(), batch)
    monkeypatch.setattr(graph_isomorphism, "can_fuse", lambda layers, features, batch: True)
    found = step(model, batch)
    largest = max(value.double().norm() for value in expected.values())
    for name, value in expected.items():
        error = (found[name].double() - value.double()).norm()
        assert error <= 1e-5 * value.double().norm() + 1e-6 * largest, name


@runs
def test_errors_are_those_of_plain_layers(monkeypatch):
    """On a GPU with a whole batch of training, in the precision in which it is used."""
    model, batch = network(300 if ON_GPU else 12), batch_of(1024 if ON_GPU else 20)
    expected, found = step(copy.deepcopy(model).double(), batch), []
    for fuses in (False, True):
        monkeypatch.setattr(graph_isomorphism, "can_fuse", lambda *_, fuses=fuses: fuses)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=ON_GPU):  # the interpreter has float32 alone
            found.append(step(copy.deepcopy(model), batch))
    for name, value in expected.items():
        plain, fused = ((one[name].double() - value).norm() for one in found)
        assert fused <= 1.5 * plain + 1e-3 * value.double().norm(), name


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_replays_are_the_step(fused):
    model, batch = network(300), batch_of(1024)
    other = copy.deepcopy(model)

    def compute(batch, model=model):
        model.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16):
            model(batch).float().square().mean().backward()

    take = mmb.capture(compute)
    for _ in range(12):
        take(batch)
        compute(batch, other)
        for one, two in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(one.grad, two.grad, rtol=1e-2, atol=1e-4)
    assert take.recorded
    torch.testing.assert_close(dict(model.named_buffers()), dict(other.named_buffers()), rtol=1e-3, atol=1e-4)


@runs
def test_gradients_of_biases_in_front_of_a_norm_are_zero(fused):
    found = step(network(), batch_of())
    for name in ("linear1.bias", "linear2.bias"):
        assert not found[f"encoder.layers.1.mlp.{name}"].any()


@runs
def test_padding_changes_nothing(fused):
    less, more = (step(network(), batch_of(padding=padding)) for padding in (3, 70))
    torch.testing.assert_close(less, more, rtol=1e-4, atol=1e-5)


@runs
def test_dropout_is_that_of_the_backward_pass(fused):
    """The loss is linear in the bias of the last norm, so its gradient says what was dropped."""
    model, batch = network(width=16, dropout=0.25), batch_of()
    bias = model.encoder.layers[-1].mlp.norm2.bias
    outputs = []
    for added in (0.0, 1.0):
        torch.manual_seed(3)
        with torch.no_grad():
            bias.add_(added)
        outputs.append(model(batch).sum())
    (gradient,) = torch.autograd.grad(outputs[0], bias)
    torch.testing.assert_close(gradient.sum(), outputs[1] - outputs[0], rtol=1e-3, atol=1e-3)
    torch.manual_seed(4)
    assert model(batch).sum() != outputs[1]


@runs
def test_gradients_that_are_handed_back_after_a_relu_are_enough(fused, monkeypatch):
    """Without a virtual node, the features of a layer are read by the next layer alone."""
    model, batch = network(width=16, dropout=0.25), batch_of()
    found = []
    for chained in (True, False):
        make = partial(fused_layers.FusedLayers, chained=chained)
        monkeypatch.setattr(graph_isomorphism, "FusedLayers", lambda *given, make=make: make(*given[:-1]))
        torch.manual_seed(3)
        found.append(step(copy.deepcopy(model), batch))
    torch.testing.assert_close(*found)


@runs
@pytest.mark.parametrize("relu", [True, False])
def test_share_of_features_that_is_dropped(relu):
    from mmb.models import _layer_steps as steps

    rows = 512
    features = torch.ones(rows, 64, device=DEVICE)
    found = torch.ones(6, 64, device=DEVICE)
    real, seed = (torch.tensor([value], device=DEVICE) for value in (rows - 1, 11))
    result = steps.norm(features, found, real, seed, relu, 16384)
    assert result.unique().tolist() == [0.0, pytest.approx(2 / 0.75)]
    kept = (result[:-1] > 0).double()
    assert abs(kept.mean() - 0.75) < 4 * (0.1875 / kept.numel()) ** 0.5
    for one, other in ((kept[1:], kept[:-1]), (kept[:, 1:], kept[:, :-1]), (kept[:, 8:], kept[:, :-8])):
        assert abs(((one - 0.75) * (other - 0.75)).mean()) < 4 * 0.1875 / one.numel() ** 0.5
    assert not result[-1].any()


@runs
def test_compiled_without_a_break(fused):
    model, batch = network(), batch_of()
    expected = step(copy.deepcopy(model), batch)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=False)
    output = compiled(batch)
    torch.testing.assert_close(output, expected["output"])
    torch.testing.assert_close(
        dict(model.named_buffers()), {k: expected[k] for k, _ in model.named_buffers()}
    )


@pytest.mark.parametrize(
    "change", ["none", "unused", "type", "frozen", "untracked", "batch", "momentum", "tasks"]
)
def test_only_what_the_kernels_compute_is_fused(change, monkeypatch):
    class OnGPU(torch.Tensor):
        is_cuda = True

    model, batch = network(), batch_of()
    layers = [layer.mlp for layer in model.encoder.layers]
    features = torch.zeros(60, 12, dtype=torch.float32 if change == "type" else torch.bfloat16)
    if change == "frozen":
        freeze_batch_norm(model)
    if change == "batch":
        batch = random_graphs(2, torch.Generator().manual_seed(0))[torch.arange(2)]
    if change == "momentum":
        layers[1].norm2.momentum = 0.5
    monkeypatch.setattr(fused_layers, "IN_USE", change != "unused")
    monkeypatch.setattr(fused_layers, "triton", object())
    features = features.as_subclass(OnGPU)

    def fuses():
        return fused_layers.can_fuse(layers, features, batch)

    if change == "untracked":
        with untracked_batch_norm(model):
            assert not fuses()
    elif change == "tasks":
        weight = layers[0].linear1.weight
        del layers[0].linear1.weight

        def within(stacked):
            layers[0].linear1.weight = stacked
            return stacked.new_tensor(float(fuses()))

        assert not torch.vmap(within)(weight.detach().expand(2, -1, -1)).any()
    else:
        assert fuses() == (change == "none")
