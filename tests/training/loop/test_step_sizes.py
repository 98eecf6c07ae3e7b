"""Schedules against closed forms."""

import math

import pytest
import torch
from torch import nn

from mmb.training.loop.step_sizes import step_size_factor
from mmb.training.recipes.recipe import ScheduleSettings


def factors(steps=100, steps_per_epoch=10, **settings):
    return [step_size_factor(ScheduleSettings(**settings), t, steps, steps_per_epoch) for t in range(steps)]


def test_step_decay_multiplies_at_milestones():
    found = factors(name="step", milestones=(3, 5), factor=0.1)
    assert found == pytest.approx([1.0] * 30 + [0.1] * 20 + [0.01] * 50)


def test_cosine_and_warmup():
    assert factors(name="cosine")[50] == pytest.approx(0.5)
    assert factors(name="cosine") == pytest.approx(
        [(1 + math.cos(math.pi * t / 100)) / 2 for t in range(100)]
    )
    assert factors(name="constant", warmup=4)[:6] == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])


def test_one_cycle_is_that_of_torch():
    weight = nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=1001)
    found = []
    for _ in range(1000):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert factors(1000, name="one_cycle") == pytest.approx(found, abs=0.006)  # its last step is one earlier
