"""Draws with their inputs, resumed exactly."""

import pytest
import torch

from mmb.auc import CrossEntropy
from mmb.training.loop.read_ahead import ReadAhead
from mmb.trees import tensors
from streamed_data import streamed_data


def reader(kind, ahead):
    dataset, labels, sampler = streamed_data(kind, ahead)
    return ReadAhead(dataset, sampler, torch.Generator().manual_seed(3), CrossEntropy(labels))


@pytest.mark.parametrize("kind", ["rows", "tasks"])
def test_resumes_exactly_whatever_is_read_ahead(kind):
    one = reader(kind, ahead=5)
    source = iter(one)
    for _ in range(9):  # into the second epoch
        next(source)
    state = one.state_dict()
    expected = [next(source) for _ in range(12)]
    resumed = reader(kind, ahead=2)
    resumed.load_state_dict(state)
    for found, want in zip(resumed, expected, strict=False):
        pairs = list(zip(tensors(tuple(found)), tensors(tuple(want)), strict=True))
        assert len(pairs) > 3
        assert all(torch.equal(a, b) for a, b in pairs)
