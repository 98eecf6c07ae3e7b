"""Training of objects: in place, from their weights, and continued by the same call."""

import copy
import gc

import pytest
import torch
from torch import nn

import own_parts
from mmb.auc import CrossEntropy
from mmb.data import make_dataset
from mmb.data.sets import synthetic
from mmb.models import mlp
from mmb.training import Observer, RecipeError, Run, RunError, TrainingError, evaluate_run, fit
from mmb.training.runs import checkpoint

SHORT = {"steps": 20, "evaluate_every": 10, "device": "cpu"}
DATA = synthetic.load(rows=300, tasks=3, features=6, positive_rate=0.1)


def seeded(make, *arguments):
    """A network that is always the same."""
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(0)
        return make(*arguments)


def make_model():
    return seeded(mlp, 6, [8], 3)


def test_it_starts_from_the_weights_of_the_model(tmp_path):
    model = make_model()
    before = copy.deepcopy(model.state_dict())
    fit(
        model,
        DATA,
        "pauc",
        folder=tmp_path,
        training={**SHORT, "keep_checkpoints": 9},
        optimizer={"lr": 0.01},
    )
    start = checkpoint.load(checkpoint.steps(Run.open(tmp_path).checkpoints)[0])["job"]["model"]
    assert all(torch.equal(start[name], value) for name, value in before.items())
    assert not all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_model_ends_with_the_selected_weights_and_the_run_can_be_evaluated(tmp_path):
    model = make_model()
    result = fit(model, DATA, "auc", folder=tmp_path / "run", training=SHORT)
    run = Run.open(tmp_path / "run")
    selected = checkpoint.load(run.best_checkpoint())["job"]["model"]
    assert all(torch.equal(value, selected[name]) for name, value in model.state_dict().items())
    assert evaluate_run(run, "test")["mean"] == result["test"]


def test_a_plain_module_on_tensors_without_a_folder():
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    labels = (x[:, :2] > 1).float()
    labels[::7, 0] = torch.nan
    model = seeded(lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    changes = {"training": {**SHORT, "steps": 40}, "optimizer": {"lr": 0.03}}
    result = fit(model, make_dataset(x, labels), soup={"still_rising": 1, "still_gaining": 1}, **changes)
    assert set(result["branches"]) >= {"ce", "auc"}
    assert result["test"]["auc"] > 0.7


def test_the_same_call_continues(tmp_path):
    class Killer(Observer):
        def evaluated(self, step, valid):
            if step == 10:
                raise KeyboardInterrupt

    undisturbed, model = make_model(), make_model()
    expected = fit(undisturbed, DATA, "pauc", folder=tmp_path / "one", training=SHORT)
    with pytest.raises(KeyboardInterrupt):
        fit(model, DATA, "pauc", folder=tmp_path / "two", training=SHORT, observer=Killer())
    assert all(torch.equal(v, make_model().state_dict()[k]) for k, v in model.state_dict().items())
    assert fit(model, DATA, "pauc", folder=tmp_path / "two", training=SHORT)["test"] == expected["test"]
    assert all(torch.equal(v, undisturbed.state_dict()[k]) for k, v in model.state_dict().items())
    with pytest.raises(RunError, match="another recipe"):
        fit(mlp(6, [9], 3), DATA, "pauc", folder=tmp_path / "two", training=SHORT)


def test_a_run_whose_objects_are_gone_says_so(tmp_path):
    data = make_dataset(torch.randn(60, 2), (torch.arange(60) % 3 == 0).long())
    fit(nn.Linear(2, 1), data, "ce", folder=tmp_path, training=SHORT)
    del data
    gc.collect()
    with pytest.raises(ValueError, match=r"data set.*fit"):
        evaluate_run(Run.open(tmp_path), "test")


def test_what_does_not_fit_is_named():
    with pytest.raises(TypeError, match=r"model: .*Module, got function"):
        fit(lambda x: x, DATA)
    with pytest.raises(TypeError, match=r"dataset: .*got tuple.*make_dataset"):
        fit(make_model(), (DATA.inputs, DATA.labels))
    with pytest.raises(TypeError, match=r"method: .*its class, CrossEntropy"):
        fit(make_model(), DATA, CrossEntropy(DATA.labels))
    with pytest.raises(ValueError, match=r"model: all of its parameters are frozen"):
        fit(make_model().requires_grad_(False), DATA)
    inputs = torch.zeros(len(DATA), 6)
    short = make_dataset(lambda rows: inputs[:2], DATA.labels)
    with pytest.raises(ValueError, match=r"logits of 2 rows for \d+ rows"):
        fit(make_model(), short, "ce", training=SHORT)
    inputs[int(make_dataset(inputs, DATA.labels).split["valid"][3]), 2] = torch.nan
    with pytest.raises(TrainingError, match=r"inputs of row \d+, .*not finite"):
        fit(make_model(), make_dataset(inputs, DATA.labels), "ce", training=SHORT)
    with pytest.raises(ValueError, match=r"logits of shape \(\d+, 2\).*\[rows, 3\]"):
        fit(nn.Linear(6, 2), DATA, "ce", training=SHORT)


def test_an_objective_may_be_given_as_its_class(tmp_path):
    fit(make_model(), DATA, own_parts.HalfCrossEntropy, folder=tmp_path, training=SHORT)
    assert Run.open(tmp_path).recipe.method == "own_parts:HalfCrossEntropy"
    with pytest.raises(RecipeError, match=r"Linear.*Objective"):
        fit(make_model(), DATA, nn.Linear, training=SHORT)


def test_one_task_may_have_logits_without_a_second_axis():
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    plain = nn.Sequential(seeded(nn.Linear, 4, 1), nn.Flatten(0))
    result = fit(plain, make_dataset(x, x[:, 0] > 1), "pauc", training=SHORT, optimizer={"lr": 0.03})
    assert result["test"]["auc"] > 0.7
