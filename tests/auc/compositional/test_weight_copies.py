"""Weight copies in a training step: reading ahead changes nothing."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn

from mmb.auc import CompositionalAUC, TaskSampler
from mmb.auc.batches import TaskBatch
from mmb.auc.compositional.host_rows import HostRows
from mmb.auc.compositional.weight_copies import WeightCopies
from mmb.models import MultiTask, mlp

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")


NUM_TASKS, NUM_ROWS = 6, 80


DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


def count_reads(monkeypatch):
    started, start = [], HostRows._start
    monkeypatch.setattr(
        HostRows, "_start", lambda self, numbers: started.append(numbers.tolist()) or start(self, numbers)
    )
    return started


def make_problem(device="cpu", **options):
    generator = torch.Generator().manual_seed(3)
    labels = (torch.rand(NUM_ROWS, NUM_TASKS, generator=generator) < 0.4).to(torch.int8)
    inputs = torch.randn(NUM_ROWS, 4, generator=generator).to(device)
    torch.manual_seed(0)  # the model's start
    model = mlp(4, [8], NUM_TASKS).to(device)
    objective = CompositionalAUC(labels, model, lr_lower=0.4, **options).to(device)
    return labels, inputs, model, objective


def to_device(batch, device):
    """All but the task numbers, as the feed of a run does."""
    lower = None if batch.lower is None else to_device(batch.lower, device)
    return TaskBatch(batch.inputs, batch.labels.to(device), batch.tasks, lower=lower)


def train(ahead, device="cpu", steps=12, **options):
    labels, inputs, model, objective = make_problem(device, **options)
    optimizer = torch.optim.SGD([*model.parameters(), *objective.parameters()], lr=0.1)
    # four of six tasks a step, so that consecutive steps have at least two in common
    sampler = TaskSampler(labels, 4, 8, independent_lower=True, steps_per_epoch=steps + 1, generator=1)
    shared = 0
    for draw, following in pairwise(sampler):
        if ahead:
            objective.prefetch(following.tasks)
        shared += int(torch.isin(draw.tasks, following.tasks).sum())
        optimizer.zero_grad()
        objective.backward(model, to_device(draw.batch(inputs), device))
        optimizer.step()
    assert shared >= 2 * steps
    return {**model.state_dict(), **objective.state_dict()}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float64])
def test_reading_ahead_changes_no_bit(device, dtype, monkeypatch):
    start = {"copies_dtype": dtype, "copies_device": "cpu"}
    plain, started = train(False, device, **start), count_reads(monkeypatch)
    ahead = train(True, device, **start)
    assert len(started) == 12 + 1  # all of them ahead, but for the first
    for name, value in plain.items():
        assert torch.equal(value, ahead[name]), name
    on_device = train(False, device, copies_dtype=dtype)
    for name, value in plain.items():
        assert torch.equal(value.cpu(), on_device[name].cpu()), name


def test_joining_undoes_splitting():
    encoder = nn.Sequential(nn.Conv1d(3, 4, 2), nn.Flatten(), nn.Linear(8, 5))
    copies = WeightCopies(MultiTask(encoder, 5, NUM_TASKS))
    rows = torch.randn(2, copies.stacked.shape[1], generator=torch.Generator().manual_seed(0))
    assert torch.equal(copies.join(copies.split(rows)), rows)
    assert torch.equal(copies.join([part.contiguous() for part in copies.split(rows)]), rows)


def test_state_loaded_after_reading_ahead_is_what_counts():
    labels, inputs, model, objective = make_problem(copies_device="cpu")
    batch = next(iter(TaskSampler(labels, 4, 8, independent_lower=True, generator=1))).batch(inputs)
    other, twin = copy.deepcopy(objective), copy.deepcopy(model)
    with torch.no_grad():
        other.copies.stacked.add_(0.1)
    objective.prefetch(batch.tasks)
    objective.load_state_dict(other.state_dict())
    duplicate, third = copy.deepcopy(objective), copy.deepcopy(model)
    objective.backward(model, batch)
    other.backward(twin, batch)
    duplicate.backward(third, batch)
    for found, network in ((objective, model), (duplicate, third)):
        for name, value in other.state_dict().items():
            assert torch.equal(value, found.state_dict()[name]), name
        for left, right in zip(network.parameters(), twin.parameters(), strict=True):
            assert torch.equal(left.grad, right.grad)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_step_with_copies_in_host_memory_never_waits_for_the_device():
    labels, inputs, model, objective = make_problem("cuda", copies_device="cpu")
    draw = next(iter(TaskSampler(labels, 4, 8, independent_lower=True, generator=1)))
    batch = to_device(draw.batch(inputs), "cuda")
    objective.backward(model, batch)  # first use locks memory and loads kernels
    assert objective.copies.stacked.is_pinned()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            objective.prefetch(draw.tasks)
            objective.backward(model, batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
