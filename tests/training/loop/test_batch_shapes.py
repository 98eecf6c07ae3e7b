"""Batches of graphs in one shape."""

from dataclasses import replace

import pytest
import torch

from mmb.auc import CrossEntropy, RichRowSampler, TaskSampler
from mmb.data.inputs.graphs import FixedGraphs, GraphBatch
from mmb.training.loop.feed import Feed
from mmb.trees import tensors
from random_graphs import random_graphs, random_molecules


@pytest.mark.parametrize("kind", ["uniform", "rich", "tasks", "tasks apart"])
def test_batches_of_graphs_have_one_shape(kind):
    dataset = random_molecules()
    labels = dataset.labels[dataset.split["train"]]
    if kind.startswith("tasks"):
        sampler = TaskSampler(labels, 2, 16, independent_lower=kind == "tasks apart")
    else:
        sampler = RichRowSampler(labels, 32, 0.5 if kind == "rich" else 0.0)
    objective = CrossEntropy(labels)
    objective.weights_per_task = kind == "tasks apart"
    before = sampler.state_dict()
    feed = Feed(dataset, sampler, torch.Generator(), objective, one_shape=True)
    after = sampler.state_dict()
    assert (after["epoch"], after["step"]) == (0, 0)
    assert torch.equal(after["generator"], before["generator"])
    batches = [batch for batch, _ in zip(feed, range(100), strict=False) if batch.rows.numel() == 32]
    shapes = [[tensor.shape for tensor in tensors(batch)] for batch in batches]
    assert len(shapes) > 85
    assert all(shape == shapes[0] for shape in shapes)
    graphs = [getattr(batch.inputs, "inputs", batch.inputs) for batch in batches]
    drawn = max(int(one.node_mask.sum(-1).max()) for one in graphs)
    assert graphs[0].node_mask.shape[-1] < drawn + 2 * 128  # and little of it is padding


def test_graphs_that_do_not_fit_keep_their_shape():
    graphs = random_graphs(10, torch.Generator().manual_seed(0))
    rows = torch.arange(4)
    nodes, edges = graphs.sizes(rows)
    assert isinstance(replace(graphs, room=(nodes + 1, edges))[rows], FixedGraphs)
    for room in ((nodes, edges), (nodes + 1, edges - 1)):
        assert type(replace(graphs, room=room)[rows]) is GraphBatch
