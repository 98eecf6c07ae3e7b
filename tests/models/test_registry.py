"""Networks by name: options, and what follows from a data set."""

from __future__ import annotations

import json

import pytest
import torch

from mmb.data.dataset import Dataset
from mmb.models import registry
from mmb.models.graph_isomorphism import GIN
from random_graphs import random_graphs


def dataset(inputs, tasks=3):
    n = len(inputs)
    split = {"train": torch.arange(n - 2), "valid": torch.tensor([n - 2]), "test": torch.tensor([n - 1])}
    labels = torch.zeros(n, tasks, dtype=torch.int8)
    return Dataset("things", inputs, labels, split, tuple(f"task_{k}" for k in range(tasks)))


DATA = {
    "table": dataset(torch.randn(6, 11)),
    "small images": dataset(torch.randn(6, 3, 32, 32)),
    "large images": dataset(torch.randn(6, 1, 96, 96)),
    "graphs": dataset(random_graphs(6, torch.Generator().manual_seed(0))),
}


@pytest.mark.parametrize(
    ("data", "name", "found"),
    [
        ("table", "mlp", {"num_inputs": 11, "hidden": [256, 256]}),
        ("small images", "resnet18", {"channels": 3, "stem": "cifar"}),
        ("large images", "resnet18", {"channels": 1, "stem": "imagenet"}),
        ("large images", "densenet121", {"channels": 1}),
        ("graphs", "gin", {}),
    ],
)
def test_networks_fit_their_data(data, name, found):
    data = DATA[data]
    arguments = registry.complete(name, data)
    assert arguments == {"num_tasks": 3, **found}
    assert json.loads(json.dumps(arguments)) == arguments
    network = registry.build(name, data)
    assert network(data.inputs[torch.arange(4)]).shape == (4, 3)
    again = registry.build(name, **arguments)
    again.load_state_dict(network.state_dict())


def test_given_options_win():
    network = registry.build("gin", DATA["graphs"], layers=2, width=16, num_tasks=7, virtual_node=True)
    assert isinstance(network.encoder, GIN)
    assert (len(network.encoder.layers), network.weight.shape) == (2, (7, 16))


def test_a_seed_makes_the_same_network_and_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    one, two, three = (registry.build("gin", num_tasks=2, layers=2, width=8, seed=s) for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    equal = [torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True)]
    assert all(equal)
    assert not torch.equal(one.weight, three.weight)


def test_every_network_says_what_it_is_and_what_options_it_has():
    assert set(registry.available_networks()) == {"mlp", "resnet18", "densenet121", "gin"}
    for name, line in registry.available_networks().items():
        assert line.endswith(".")
        for parameter in registry.network_options(name).values():
            assert parameter.annotation is not parameter.empty
            assert parameter.name in {*registry.START} or parameter.name in registry.builder(name).__doc__


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: registry.build("resnet", num_tasks=2), r"'resnet'.*'resnet18'"),
        (lambda: registry.build("gin", num_tasks=2, widht=9), r"'widht'.*'width'"),
        (lambda: registry.build("mlp", num_tasks=2, hidden=[3]), "num_inputs"),
        (lambda: registry.build("gin", DATA["table"]), r"'gin'.*table.*mlp"),
        (lambda: registry.build("mlp", DATA["graphs"]), r"'mlp'.*graphs.*gin"),
        (lambda: registry.build("own_parts"), r"'own_parts'.*mlp"),
        (lambda: registry.build("own_parts.nets"), r"import path.*own_parts\.nets:"),
        (lambda: registry.build("own_parts:Child", DATA["table"], widht=9), r"'widht'.*'width'"),
        (lambda: registry.build("own_parts:Child"), r"'num_inputs'"),
        (lambda: registry.build("own_parts:Listed", DATA["table"]), r"own_parts:Listed.*without parameters"),
        (
            lambda: registry.complete("mlp", dataset(torch.randn(6, 2, 2))),
            r"\[1, 2, 2\].*Module",
        ),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", ["own_parts:Child", "own_parts:build_child", "own_parts:build_hidden"])
def test_sizes_reach_what_kwargs_pass_on(name):
    assert registry.complete(name, DATA["table"]) == {"num_tasks": 3, "num_inputs": 11}
    network = registry.build(name, DATA["table"], width=9)
    assert [tuple(weight.shape) for weight in network.parameters()] == [(9, 11), (9,), (3, 9), (3,)]


def test_options_are_those_that_kwargs_pass_on():
    found = registry.network_options("own_parts:Child")
    assert {*found} == {"scale", "num_inputs", "num_tasks", "width", *registry.START}
    assert (found["width"].default, found["width"].annotation) == (6, int)


def test_what_is_no_network_is_refused():
    with pytest.raises(TypeError, match=r"own_parts:build_data.*Dataset.*Module"):
        registry.build("own_parts:build_data", DATA["table"])
