"""Steps captured in a CUDA graph: batches of one shape, and the same training as without."""

from dataclasses import replace

import pytest
import torch

from mmb.auc import CrossEntropy, Labels
from mmb.auc.sampling import RichRowSampler
from mmb.data import Dataset
from mmb.data.graphs import FixedGraphs, GraphBatch
from mmb.models.gin import gin
from mmb.training.feed import Feed, fixed_shapes
from mmb.training.job import Job, check_capture, make_job, make_optimizer
from mmb.training.log import Window
from mmb.training.recipe import OptimizerSettings
from mmb.training.step import CapturedStep, Step, tensors
from random_graphs import random_graphs
from tiny_runs import tiny_recipe

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def molecules(rows=300):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(-1, 2, (rows, 3), generator=generator).to(torch.int8)
    order = torch.arange(rows)
    split = {"train": order[:250], "valid": order[250:280], "test": order[280:]}
    return Dataset("graphs", random_graphs(rows, generator), labels, split, ("a", "b", "c"))


@pytest.mark.parametrize("rich", [0.0, 0.5])
def test_batches_of_graphs_have_one_shape(rich):
    dataset = molecules()
    sampler = RichRowSampler(dataset.labels[dataset.split["train"]], 32, rich)
    before = sampler.state_dict()
    fixed = fixed_shapes(dataset, sampler)
    assert all(
        torch.equal(torch.as_tensor(before[k]), torch.as_tensor(v)) for k, v in sampler.state_dict().items()
    )
    feed = iter(Feed(fixed, sampler, torch.Generator()))
    batches = [next(feed) for _ in range(100)]
    shapes = [[tensor.shape for tensor in tensors(batch)] for batch in batches if len(batch.labels) == 32]
    assert len(shapes) > 85
    assert all(shape == shapes[0] for shape in shapes)
    drawn = max(int(batch.inputs.node_mask.sum()) for batch in batches if len(batch.labels) == 32)
    assert len(batches[0].inputs.node_mask) < drawn + 2 * 128  # and little of it is padding


def test_graphs_that_do_not_fit_keep_their_shape():
    graphs = random_graphs(10, torch.Generator().manual_seed(0))
    rows = torch.arange(4)
    nodes, edges = graphs.sizes(rows)
    assert isinstance(replace(graphs, room=(4, nodes + 1, edges))[rows], FixedGraphs)
    for room in ((4, nodes, edges), (4, nodes + 1, edges - 1), (5, nodes + 1, edges)):
        assert type(replace(graphs, room=room)[rows]) is GraphBatch


@pytest.mark.parametrize(
    ("changes", "device", "message"),
    [
        ({}, "cpu", "needs a GPU, and the device is cpu"),
        ({"sampler": {"kind": "tasks"}}, "cuda", "sampler.kind=rows"),
        ({"schedule": {"decay_blocks": True}}, "cuda", "schedule.decay_blocks=false"),
    ],
)
def test_refused_where_it_cannot_work(changes, device, message):
    recipe = tiny_recipe(**{**changes, "training": {"capture": True}})
    with pytest.raises(ValueError, match=message):
        check_capture(recipe, torch.device(device))


@needs_gpu
@pytest.mark.parametrize("optimizer", [{"name": "adam"}, {"name": "momentum", "lr": 0.1, "clip": 1.0}])
@pytest.mark.parametrize("method", ["ce", "auc", "pauc", "pauc-full", "mb"])
def test_same_training_as_without(method, optimizer):
    found = []
    for capture in (False, True):
        recipe = tiny_recipe(
            method,
            model={"dropout": 0.0},
            optimizer=optimizer,
            schedule={"name": "cosine"},
            training={"capture": capture, "device": "cuda"},
        )
        with torch.random.fork_rng(["cuda"]):
            torch.manual_seed(0)
            job = make_job(recipe)
        step = CapturedStep(job) if capture else Step(job)
        losses = []
        for number, batch in zip(range(25), job.feed, strict=False):
            job.set_step_sizes(number)
            losses.append(step(batch)["loss"])
        found.append([torch.stack(losses), *job.model.parameters(), *job.objective.state_dict().values()])
    for plain, captured in zip(*found, strict=True):
        torch.testing.assert_close(captured, plain, rtol=1e-4, atol=1e-5)


@needs_gpu
def test_same_training_on_graphs():
    found = []
    for capture in (False, True):
        dataset = molecules().to("cuda")
        labels = Labels(dataset.labels[dataset.split["train"]].cpu())
        sampler = RichRowSampler(labels, 32, 0.5)
        torch.manual_seed(0)
        model, objective = gin(3, layers=2, width=16, dropout=0.0).cuda(), CrossEntropy(labels).cuda()
        settings = OptimizerSettings("sgd", lr=0.05)
        job = Job(
            tiny_recipe("ce", optimizer={"name": "sgd"}),
            dataset,
            model,
            objective,
            make_optimizer(settings, model, objective, capture),
            Feed(fixed_shapes(dataset, sampler) if capture else dataset, sampler, torch.Generator()),
            20,
            10,
            Window(),
        )
        step = CapturedStep(job) if capture else Step(job)
        losses = [step(batch)["loss"] for _, batch in zip(range(20), job.feed, strict=False)]
        found.append([torch.stack(losses), *model.state_dict().values()])
    for plain, captured in zip(*found, strict=True):
        torch.testing.assert_close(captured, plain, rtol=2e-3, atol=2e-4)
