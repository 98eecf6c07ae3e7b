"""Batches of training rows, and tasks told ahead."""

import pytest
import torch

from mmb.auc import CrossEntropy
from mmb.training.loop.feed import Feed
from streamed_data import streamed_data


def make_feed(kind, ahead=0):
    dataset, labels, sampler = streamed_data(kind, ahead)
    return Feed(dataset, sampler, torch.Generator().manual_seed(3), CrossEntropy(labels)), dataset


@pytest.mark.parametrize("kind", ["rows", "tasks"])
def test_batches_are_of_training_rows_with_their_labels(kind):
    feed, dataset = make_feed(kind)
    for batch, _ in zip(feed, range(20), strict=False):
        rows = dataset.split["train"][batch.rows]
        inputs = dataset.inputs.values[rows]
        assert ((batch.inputs - inputs >= 0) & (batch.inputs - inputs <= 1)).all()  # the noise of the stream
        if kind == "rows":
            assert torch.equal(batch.labels, dataset.labels[rows])
        else:
            for part in (batch, batch.lower):
                rows = dataset.split["train"][part.rows]
                assert torch.equal(part.labels, dataset.labels[rows, part.tasks.unsqueeze(1)])


def test_the_next_tasks_are_prefetched_before_each_batch():
    feed, _ = make_feed("tasks")
    told = []
    feed.objective.prefetch = lambda tasks: told.append(tasks.tolist())
    batches = iter(feed)
    used = [next(batches).tasks.tolist() for _ in range(5)]
    assert told[:4] == used[1:]
