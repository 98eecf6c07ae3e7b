"""The parts of a run against closed forms; what cannot be trained is refused before anything is made."""

import math
import re
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn

from mmb import memory
from mmb.auc import Labels
from mmb.memory import NoRoomError
from mmb.training import Run, train
from mmb.training.loop.setup import (
    decide_capture,
    make_optimizer,
    make_sampler,
    make_setup,
    most_positives,
    rows_per_step,
)
from mmb.training.loop.step import Step
from mmb.training.processes.group import ONE
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


@pytest.mark.parametrize("method", ["pauc", "auc-ct"])
def test_steps_have_as_many_rows_where_tasks_are_few(method):
    recipe = tiny_recipe(method, sampler={"kind": "tasks", "tasks_per_step": 4, "rows_per_task": 6})
    sampler = make_sampler(recipe, Labels((torch.arange(200) % 3 == 0).long().unsqueeze(1)))
    draw = next(iter(sampler))
    drawn = sum(part.rows.numel() for part in (draw, draw.lower) if part is not None)
    assert drawn == rows_per_step(recipe) == (48 if method == "auc-ct" else 24)
    assert len(sampler) == math.ceil(200 / drawn)


@pytest.mark.parametrize(
    ("changes", "device", "message"),
    [
        ({}, "cpu", "GPU.*cpu"),
        ({"method": "auc-ct", "objective": {"copies_device": "cpu"}}, "cuda", "copies_device=null"),
        ({"sampler": {"kind": "own_parts:EveryRow"}}, "cuda", "own sampler"),
    ],
)
def test_capture_is_refused_where_it_cannot_work_and_auto_says_so(changes, device, message):
    recipe = tiny_recipe(**{**changes, "training": {"capture": True}})
    with pytest.raises(ValueError, match=message):
        decide_capture(recipe, torch.device(device))
    found, note = decide_capture(with_capture(recipe, "auto"), torch.device(device))
    assert not found
    assert note is None if device == "cpu" else re.search(message, note)
    assert decide_capture(with_capture(recipe, False), torch.device(device)) == (False, None)


@pytest.mark.parametrize("method", ["ce", "pauc", "auc-ct", "auc-ct-heads", "pauc-pairwise"])
def test_auto_captures_on_a_gpu_and_only_there(method):
    recipe = tiny_recipe(method, schedule={"decay_blocks": True}, training={"capture": "auto"})
    assert decide_capture(recipe, torch.device("cuda")) == (True, None)
    assert decide_capture(recipe, torch.device("cpu")) == (False, None)
    many = replace(ONE, size=2)
    assert "one process" in decide_capture(recipe, torch.device("cuda"), many)[1]
    assert not make_setup(recipe).captured


def with_capture(recipe, choice):
    return replace(recipe, training=replace(recipe.training, capture=choice))


@pytest.mark.parametrize("kind", ["rows", "tasks"])
def test_room_for_positives_is_more_than_batches_have(kind):
    labels = Labels((torch.rand(400, 6, generator=torch.Generator().manual_seed(0)) < 0.1).long())
    recipe = tiny_recipe(sampler={"kind": kind})
    counts = [
        int((d.batch(labels.values, labels.values).labels == 1).sum()) for d in make_sampler(recipe, labels)
    ]
    room = most_positives(make_sampler(recipe, labels), labels)
    assert max(counts) < room <= 1.5 * max(counts) + 32


def compositional(**options):
    training = {"steps": 12, "evaluate_every": 6}
    return tiny_recipe("auc-ct", objective={"lr_dual": 0.1, **options}, training=training)


def test_storage_of_copies_is_part_of_a_recipe():
    recipe = compositional(copies_dtype="bfloat16", copies_device="cpu")
    assert recipe.objective["copies_dtype"] == "bfloat16"
    assert resolve(to_plain(recipe)) == recipe
    with pytest.raises(ValueError, match="copies_dtype"):
        compositional(copies_dtype="bfloat15")


def test_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    run = Run.create(tmp_path / "run", compositional())
    with pytest.raises(NoRoomError, match=r"1\.3 KiB.*1000 bytes.*copies_dtype=bfloat16"):
        train(run)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # as torchrun says it
    with pytest.raises(NoRoomError, match=r"bfloat16.*648 bytes.*2 processes"):
        make_setup(compositional(copies_dtype="bfloat16"))


def test_a_checkpoint_of_captured_steps_goes_on_without_and_the_other_way_round(monkeypatch):
    """As "auto" does on machines with and without a GPU."""
    recipe = tiny_recipe("ce", model={"dropout": 0.0}, training={"capture": "auto"})
    plain = make_setup(recipe)
    monkeypatch.setattr("mmb.training.loop.setup.decide_capture", lambda *_: (True, None))
    captured = make_setup(recipe)
    Step(plain)(next(iter(plain.feed)))
    rate = captured.optimizer.param_groups[0]["lr"]
    captured.load_state_dict(deepcopy(plain.state_dict()))
    assert all(group["capturable"] for group in captured.optimizer.param_groups)
    assert captured.optimizer.param_groups[0]["lr"] is rate
    monkeypatch.undo()
    other = make_setup(recipe)
    other.load_state_dict(deepcopy(captured.state_dict()))
    for setup in (plain, other):
        assert not any(group["capturable"] for group in setup.optimizer.param_groups)
        setup.set_step_sizes(1)
    batch = next(iter(plain.feed))
    losses = [Step(setup)(batch)["loss"] for setup in (plain, other)]
    assert losses[0] == losses[1]
    torch.testing.assert_close(other.model.state_dict(), plain.model.state_dict(), rtol=0, atol=0)
