"""Runs that start from the weights of another, with block variables placed by them."""

import hashlib

import pytest
import torch

from mmb.training import Run, RunError, evaluate_run, train
from mmb.training.loop.initial_weights import take_over
from mmb.training.loop.setup import make_setup
from mmb.training.runs import checkpoint
from tiny_runs import tiny_recipe

EASY = {"data": {"noise": 0.1}, "model": {"dropout": 0.0}}
SHORT = {"steps": 8, "evaluate_every": 4, "checkpoint_every": 8}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A finished run of cross-entropy, long enough to tell the classes apart."""
    training = {"steps": 100, "evaluate_every": 50, "checkpoint_every": 100}
    recipe = tiny_recipe("ce", **EASY, optimizer={"lr": 0.03}, training=training)
    run = Run.create(tmp_path_factory.mktemp("first") / "run", recipe)
    train(run)
    return run


def test_two_phases_start_from_the_encoder_of_the_first(tmp_path):
    changes = {"pretrain": {"method": "ce", "training": SHORT}, "training": SHORT}
    run = Run.create(tmp_path / "run", tiny_recipe("pauc", **changes))
    train(run)
    first = run.pretraining()
    assert first.finished
    setup = make_setup(run.recipe)
    own_head = setup.model.weight.detach().clone()
    take_over(setup, first, heads=False)
    selected = checkpoint.load(first.best_checkpoint())["job"]["model"]
    for name, value in setup.model.encoder.state_dict().items():
        assert torch.equal(value, selected[f"encoder.{name}"])
    assert torch.equal(setup.model.weight, own_head)
    take_over(setup, first, heads=True)
    assert torch.equal(setup.model.weight, selected["weight"])


def test_starting_from_a_run_puts_copies_at_its_weights(first):
    setup = make_setup(tiny_recipe("auc-ct", objective={"copies_as": "weights"}))
    take_over(setup, first, heads=True)
    copies = setup.objective.copies
    for part, weight in zip(copies.split(copies.stacked), copies.weights(setup.model, None), strict=True):
        torch.testing.assert_close(part, weight.expand_as(part))


def test_a_run_that_does_not_fit_is_refused(tmp_path, first):
    other = Run.create(tmp_path / "other", tiny_recipe(model={"hidden": [5]}, init_from=str(first.path)))
    with pytest.raises(RunError, match=r"encoder\.0\.weight.*shape"):
        train(other)
    unfinished = Run.create(tmp_path / "unfinished", tiny_recipe())
    third = Run.create(tmp_path / "third", tiny_recipe(init_from=str(unfinished.path)))
    with pytest.raises(RunError, match="not finished"):
        train(third)


def test_a_file_of_weights_is_the_start_and_is_not_needed_afterwards(tmp_path, first):
    weights, path = checkpoint.load(first.best_checkpoint())["job"]["model"], tmp_path / "weights.pt"
    torch.save(weights, path)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    model = {"dropout": 0.0, "weights": str(path), "sha256": sha256}
    changes = {"data": {"noise": 0.1}, "optimizer": {"lr_encoder": 0.0}}
    recipe = tiny_recipe("pauc", **changes, model=model, training={**SHORT, "checkpoint_every": 4})
    run = Run.create(tmp_path / "run", recipe)
    result = train(run)
    start = checkpoint.load(checkpoint.steps(run.checkpoints)[0])["job"]["model"]
    assert all(torch.equal(start[name], weights[name]) for name in weights if name.startswith("encoder."))
    wrong = tiny_recipe("pauc", model={**model, "sha256": "0" * 64}, training=SHORT)
    with pytest.raises(ValueError, match=f"sha256.*{sha256}"):
        train(Run.create(tmp_path / "wrong", wrong))
    path.unlink()
    assert evaluate_run(Run.open(run.path), "test")["mean"] == result["test"]


def test_a_start_with_heads_places_block_variables(tmp_path, first):
    start = {"init_from": str(first.path), "init_heads": True}
    warm = {**EASY, **start, "training": {"steps": 1}}
    assert tiny_recipe("pauc", **warm).training.warm_start
    assert not tiny_recipe("pauc", **EASY, **start, training={"warm_start": False}).training.warm_start
    assert not tiny_recipe("pauc", **EASY, init_from=str(first.path)).training.warm_start
    run = Run.create(tmp_path / "run", tiny_recipe("pauc", **warm))
    train(run)
    blocks = checkpoint.load(checkpoint.steps(run.checkpoints)[0])["job"]["objective"]
    assert (blocks["mean_positive"] > blocks["mean_negative"]).all()
    other = Run.create(tmp_path / "ce", tiny_recipe("ce", **warm))
    train(other)  # has nothing to place, and trains
    assert other.finished
