"""The optimizer against the paper's update, and which step size moves what."""

import pytest
import torch
from torch import nn

from mmb.training import Run, train
from mmb.training.loop.optimizer import make_optimizer
from mmb.training.loop.setup import make_setup
from mmb.training.recipes.recipe import OptimizerSettings
from mmb.training.recipes.resolution import resolve, to_plain
from mmb.training.runs import checkpoint
from tiny_runs import tiny_recipe


def test_momentum_is_the_papers_moving_average():
    gradients = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    layer, no_objective = nn.Linear(3, 1, bias=False, dtype=torch.float64), nn.Module()
    optimizer = make_optimizer(OptimizerSettings("momentum", lr=0.1, momentum=0.7), layer, no_objective)
    x, z = layer.weight.detach().clone(), gradients[0]  # z starts at the first estimate
    for gradient in gradients:
        layer.weight.grad = gradient.unsqueeze(0).clone()
        optimizer.step()
        z = 0.7 * z + 0.3 * gradient  # b0 = 0.3
        x = x - 0.1 * z
        torch.testing.assert_close(layer.weight.detach(), x)


def test_weight_decay_spares_the_objectives_variables():
    model, objective = nn.Linear(2, 2), nn.Linear(2, 2)
    for name in ("momentum", "sgd", "adam", "adamw"):
        groups = make_optimizer(OptimizerSettings(name, weight_decay=0.1), model, objective).param_groups
        assert [group["weight_decay"] for group in groups] == [0.1, 0.0]


@pytest.mark.parametrize("method", ["pauc", "auc-ct-heads", "auc-ct"])
def test_an_encoder_has_its_own_step_size_or_none(method, tmp_path):
    changes = {"schedule": {"name": "cosine"}, "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.0}}
    training = {"steps": 4, "evaluate_every": 2, "checkpoint_every": 2}
    slow, frozen, plain = (
        make_setup(tiny_recipe(method, **{**changes, "optimizer": {**changes["optimizer"], **own}}))
        for own in ({"lr_encoder": 0.01}, {"lr_encoder": 0.0}, {})
    )
    for setup in (slow, frozen, plain):
        setup.set_step_sizes(setup.steps // 2)
    rates = {group.get("part"): group["lr"] for group in slow.optimizer.param_groups}
    assert rates["encoder"] == pytest.approx(0.1 * rates[None])
    assert len(slow.optimizer.param_groups) == len(plain.optimizer.param_groups) + 1
    trained = [id(p) for group in frozen.optimizer.param_groups for p in group["params"]]
    assert {id(p) for p in frozen.model.encoder.parameters()}.isdisjoint(trained)
    assert {id(frozen.model.weight), id(frozen.model.bias)} <= {*trained}
    recipe = tiny_recipe(method, optimizer={"lr_encoder": 0.0}, training=training)
    run = Run.create(tmp_path / "run", recipe)
    train(run)
    first, last = (checkpoint.load(path)["job"]["model"] for path in checkpoint.steps(run.checkpoints)[:2])
    still = [name for name in first if torch.equal(first[name], last[name])]
    assert still == [name for name in first if name.startswith("encoder.")]


def test_a_step_size_of_an_encoder_needs_one(tmp_path):
    model = {"name": "own_parts:build"}
    recipe = resolve({**to_plain(tiny_recipe("ce")), "model": model, "optimizer": {"lr_encoder": 0.1}})
    with pytest.raises(ValueError, match=r"optimizer\.lr_encoder.*Sequential.*encoder"):
        make_setup(recipe)
