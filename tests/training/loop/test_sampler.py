"""The sampler of a recipe draws as many rows as the recipe says."""

import math

import pytest
import torch

from mmb.auc import Labels
from mmb.training.loop.sampler import make_sampler, rows_per_step
from tiny_runs import tiny_recipe


@pytest.mark.parametrize("method", ["pauc", "auc-ct"])
def test_steps_have_as_many_rows_where_tasks_are_few(method):
    recipe = tiny_recipe(method, sampler={"kind": "tasks", "tasks_per_step": 4, "rows_per_task": 6})
    sampler = make_sampler(recipe, Labels((torch.arange(200) % 3 == 0).long().unsqueeze(1)))
    draw = next(iter(sampler))
    drawn = sum(part.rows.numel() for part in (draw, draw.lower) if part is not None)
    assert drawn == rows_per_step(recipe) == (48 if method == "auc-ct" else 24)
    assert len(sampler) == math.ceil(200 / drawn)
