"""A shared encoder with one head per task."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mmb.models import MultiTask, mlp
from mmb.models.multitask import flatten_tasks


def test_sampled_heads_equal_the_columns_of_all_heads():
    model = mlp(4, [8, 6], 5)
    inputs, tasks = torch.randn(3, 7, 4), torch.tensor([4, 0, 2])
    every = model(inputs.flatten(0, 1)).reshape(3, 7, 5)
    for i, task in enumerate(tasks):
        torch.testing.assert_close(model.task_scores(inputs, tasks)[i], every[i, :, task])
    assert model.num_tasks == 5


def test_only_sampled_heads_get_a_gradient():
    model = mlp(4, [], 5)
    model.task_scores(torch.randn(2, 3, 4), torch.tensor([1, 3])).sum().backward()
    assert not model.weight.grad[[0, 2, 4]].any()
    assert model.weight.grad[[1, 3]].any()


def test_inputs_may_be_nested():
    class Encoder(nn.Module):
        def forward(self, inputs):
            return inputs["x"] * inputs["pair"][0] + inputs["pair"][1]

    model = MultiTask(Encoder(), 4, 3)
    x, a, b = (torch.randn(2, 5, 4) for _ in range(3))
    nested = model.task_scores({"x": x, "pair": (a, b)}, torch.tensor([2, 1]))
    flat = model(flatten_tasks({"x": x, "pair": (a, b)})).reshape(2, 5, 3)
    torch.testing.assert_close(nested, torch.stack([flat[0, :, 2], flat[1, :, 1]]))


def test_inputs_may_know_how_to_flatten():
    class Graphs:
        def flatten_tasks(self):
            return torch.arange(6.0).reshape(6, 1)

    assert flatten_tasks(Graphs()).shape == (6, 1)
    with pytest.raises(TypeError, match="got str"):
        flatten_tasks(["no tensor"])


def test_dropout_and_sizes():
    model = mlp(4, [8], 2, dropout=0.5)
    assert any(isinstance(layer, nn.Dropout) for layer in model.encoder)
    assert mlp(4, [], 2)(torch.randn(3, 4)).shape == (3, 2)
    with pytest.raises(ValueError, match="num_tasks"):
        mlp(4, [8], 0)


@pytest.mark.parametrize(("inputs", "hidden"), [(0, [4]), (3, [0]), (3, [4, -4])])
def test_widths_must_be_positive(inputs, hidden):
    with pytest.raises(ValueError, match=r"num_inputs.*hidden"):
        mlp(inputs, hidden, 2)
