"""On a GPU: steps captured in a CUDA graph are the same training as without."""

from itertools import islice

import pytest
import torch

from capture_cases import CASES, SOME_CASES
from mmb.auc import (
    CompositionalAUC,
    CrossEntropy,
    Labels,
    RichRowSampler,
    TaskSampler,
)
from mmb.models.graph_isomorphism import gin
from mmb.training import Observer, Run, merge, resolve, train
from mmb.training.loop.feed import Feed
from mmb.training.loop.optimizer import make_optimizer
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.setup import Setup, make_setup
from mmb.training.loop.step import WORTH_COMPILING, CapturedStep, Step, make_step
from mmb.training.recipes.recipe import OptimizerSettings
from mmb.training.recipes.resolution import to_plain
from mmb.training.runs.log import Window
from random_graphs import random_molecules
from tiny_runs import tiny_recipe

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("optimizer", [{"name": "adam"}, {"name": "momentum", "lr": 0.1, "clip": 1.0}])
@pytest.mark.parametrize(
    ("method", "kind"),
    [
        *((name, "rows") for name in ("ce", "auc", "auc-ct-heads", "pauc", "pauc-full", "mb", "ap", "ndcg")),
        *((name, kind) for name in ("sopa", "sopa-s") for kind in ("rows", "tasks")),
        ("pauc", "tasks"),
        ("auc-ct", "tasks"),
    ],
)
def test_same_training_as_without(method, kind, optimizer):
    found = []
    for capture in (False, True, "auto"):
        recipe = tiny_recipe(
            method,
            model={"dropout": 0.0},
            sampler={"kind": kind},
            optimizer=optimizer,
            schedule={"name": "cosine", "decay_blocks": True},
            training={"capture": capture, "device": "cuda"},
        )
        with torch.random.fork_rng(["cuda"]):
            torch.manual_seed(0)
            setup = make_setup(recipe)
        step = make_step(setup, pytest.fail)
        losses = []
        for number, batch in zip(range(25), setup.feed, strict=False):
            setup.set_step_sizes(number)
            losses.append(step(batch)["loss"])
        assert not capture or step.captured.recorded
        found.append([torch.stack(losses), *setup.model.parameters(), *setup.objective.state_dict().values()])
    for captured in found[1:]:
        torch.testing.assert_close(captured, found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("while_recording", [False, True])
def test_on_a_gpu_what_cannot_be_compiled_is_captured_without(while_recording, monkeypatch, tmp_path):
    """An error in the middle of a recording leaves random numbers usable for the next one."""
    monkeypatch.setenv("MMB_DATA", str(tmp_path))

    class Failing(torch.nn.Module):
        def __init__(self, model, **_):
            super().__init__()
            self.model = model

        def forward(self, inputs):
            found = self.model(inputs)
            if torch.cuda.is_current_stream_capturing() or not while_recording:
                raise RuntimeError("no compiler here")
            return found

    monkeypatch.setattr(torch, "compile", Failing)
    setup = make_setup(tiny_recipe("ce", model={"dropout": 0.5}, training={"device": "cuda"}))
    said = []
    step = make_step(setup, said.append, WORTH_COMPILING)
    losses = [step(batch)["loss"] for _, batch in zip(range(16), setup.feed, strict=False)]
    assert step.captured.recorded
    assert said == ["steps are captured, but not compiled: no compiler here"]
    assert bool(torch.stack(losses).isfinite().all())


@pytest.mark.parametrize(("method", "kind"), CASES)
def test_every_method_is_captured_on_a_gpu(method, kind):
    found = []
    for capture in (False, "auto"):
        recipe = tiny_recipe(
            method,
            model={"dropout": 0.0},
            sampler={"kind": kind},
            optimizer={"name": "momentum", "lr": 0.1, "clip": 1.0},
            schedule={"name": "cosine", "decay_blocks": True},
            training={"capture": capture, "device": "cuda"},
        )
        with own_randomness(0, torch.device("cuda")):
            setup = make_setup(recipe)
        step, losses = make_step(setup, pytest.fail), []
        for number, batch in zip(range(12), setup.feed, strict=False):
            setup.set_step_sizes(number)
            losses.append(step(batch)["loss"])
        assert not capture or step.captured.recorded
        found.append([torch.stack(losses), *setup.model.parameters(), *setup.objective.state_dict().values()])
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("capture", [False, "auto"])
@pytest.mark.parametrize(("method", "kind"), [*SOME_CASES, ("auc", "rows"), ("pauc-pairwise", "rows")])
def test_a_whole_step_never_waits_for_the_device(method, kind, capture):
    """With its batch and its optimizer; torch's debug mode does not see copies that are asked not to wait."""
    training = {"capture": capture, "device": "cuda"}
    setup = make_setup(tiny_recipe(method, sampler={"kind": kind}, training=training))
    counts = method == "auc-ct" or hasattr(setup.objective, "capacity")
    if not setup.captured and counts:
        pytest.skip("counts its positives, or keeps task numbers on the host, unless it is captured")
    step, batches = make_step(setup, pytest.fail), iter(setup.feed)
    for _ in range(6):
        setup.window.add(step(next(batches)))
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for number in range(4):
            setup.set_step_sizes(number)
            setup.window.add(step(next(batches)))
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_auto_trains_own_networks_that_wait_and_says_why(tmp_path):
    recipe = tiny_recipe("ce", training={"capture": "auto", "device": "cuda", "steps": 20})
    said = []

    class Listening(Observer):
        def say(self, message):
            said.append(message)

    waiting = resolve(merge(to_plain(recipe), {"model": {"name": "own_parts:waiting"}}))
    train(Run.create(tmp_path / "run", waiting), Listening())
    assert len([line for line in said if "kernel by kernel" in line and "waits" in line]) == 1


def test_the_last_batch_of_an_epoch_is_not_what_is_captured():
    recipe = tiny_recipe("ce", sampler={"rich_fraction": 0.0}, training={"capture": True, "device": "cuda"})
    setup = make_setup(recipe)
    step, batches = CapturedStep(setup), list(islice(setup.feed, setup.steps_per_epoch))
    for batch in (batches[-1], *batches[:6]):  # as after a resumption at the end of an epoch
        step(batch)
    assert len(batches[-1].labels) < 32
    assert step.captured.recorded


@pytest.mark.parametrize("method", ["ce", "auc-ct"])
def test_same_training_on_graphs(method):
    found = []
    for capture in (False, True):
        dataset = random_molecules().to("cuda")
        labels = Labels(dataset.labels[dataset.split["train"]].cpu())
        torch.manual_seed(0)
        model = gin(3, layers=2, width=16, dropout=0.0).cuda()
        if method == "auc-ct":
            objective = CompositionalAUC(labels, model).cuda()
            sampler = TaskSampler(labels, 2, 16, independent_lower=True)
        else:
            objective, sampler = CrossEntropy(labels).cuda(), RichRowSampler(labels, 32, 0.5)
        settings = OptimizerSettings("sgd", lr=0.05)
        setup = Setup(
            tiny_recipe(method, optimizer={"name": "sgd"}),
            dataset,
            model,
            objective,
            make_optimizer(settings, model, objective, capture),
            Feed(dataset, sampler, torch.Generator(), objective, one_shape=capture),
            20,
            10,
            Window(),
        )
        step = CapturedStep(setup) if capture else Step(setup)
        losses = [step(batch)["loss"] for _, batch in zip(range(20), setup.feed, strict=False)]
        found.append([torch.stack(losses), *model.state_dict().values()])
    for plain, captured in zip(*found, strict=True):
        torch.testing.assert_close(captured, plain, rtol=2e-3, atol=2e-4)
