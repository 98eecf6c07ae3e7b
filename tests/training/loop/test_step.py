"""Steps captured in a CUDA graph: the same training as without."""

from functools import partial
from itertools import islice

import pytest
import torch

from mmb.auc import CompositionalAUC, CrossEntropy, Labels, RichRowSampler, TaskSampler
from mmb.models.graph_isomorphism import gin
from mmb.training.loop.feed import Feed
from mmb.training.loop.setup import Setup, make_optimizer, make_setup
from mmb.training.loop.step import CapturedStep, Step, compiled_encoder
from mmb.training.recipes.recipe import OptimizerSettings
from mmb.training.runs.log import Window
from random_graphs import random_molecules
from tiny_runs import tiny_recipe

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


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


@needs_gpu
@pytest.mark.parametrize("optimizer", [{"name": "adam"}, {"name": "momentum", "lr": 0.1, "clip": 1.0}])
@pytest.mark.parametrize(
    ("method", "kind"),
    [
        *((name, "rows") for name in ("ce", "auc", "auc-ct-heads", "pauc", "pauc-full", "mb")),
        *((name, kind) for name in ("sopa", "sopa-s") for kind in ("rows", "tasks")),
        ("pauc", "tasks"),
        ("auc-ct", "tasks"),
    ],
)
def test_same_training_as_without(method, kind, optimizer):
    found = []
    for capture in (False, True):
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
        step = CapturedStep(setup) if capture else Step(setup)
        losses = []
        for number, batch in zip(range(25), setup.feed, strict=False):
            setup.set_step_sizes(number)
            losses.append(step(batch)["loss"])
        found.append([torch.stack(losses), *setup.model.parameters(), *setup.objective.state_dict().values()])
    for plain, captured in zip(*found, strict=True):
        torch.testing.assert_close(captured, plain, rtol=1e-4, atol=1e-5)


@needs_gpu
def test_the_last_batch_of_an_epoch_is_not_what_is_captured():
    recipe = tiny_recipe("ce", sampler={"rich_fraction": 0.0}, training={"capture": True, "device": "cuda"})
    setup = make_setup(recipe)
    step, batches = CapturedStep(setup), list(islice(setup.feed, setup.steps_per_epoch))
    for batch in (batches[-1], *batches[:6]):  # as after a resumption at the end of an epoch
        step(batch)
    assert len(batches[-1].labels) < len(step._batch.labels) == 32
    assert step._numbers


@needs_gpu
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
