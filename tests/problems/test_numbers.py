"""Numbers that would make a known problem another one."""

import math

import pytest
import torch

from mmb.problems import Quadratic, RobustTasks, TopKThreshold


@pytest.mark.parametrize(
    ("problem", "number"),
    [
        (Quadratic, {"mu_f": -1.0}),
        (Quadratic, {"mu_g": 0.0}),
        (RobustTasks, {"ridge": -1.0}),
        (TopKThreshold, {"temperature": 0.0}),
    ],
)
def test_strong_convexity_is_positive(problem, number):
    (name,) = number
    with pytest.raises(ValueError, match=f"{name}.*positive"):
        problem(3, torch.Generator().manual_seed(0), **number)


@pytest.mark.parametrize(
    ("problem", "number"),
    [
        (Quadratic, {"mu_f": math.inf}),
        (Quadratic, {"condition": 0.5}),
        (Quadratic, {"condition": math.inf}),
        (Quadratic, {"curvature": -1.0}),
        (Quadratic, {"noise": -0.5}),
        (Quadratic, {"noise": math.nan}),
        (Quadratic, {"spread": math.inf}),
        (Quadratic, {"pull_x": -1.0}),
        (Quadratic, {"d_x": 2.5}),
        (Quadratic, {"d_lower": 0}),
        (Quadratic, {"num_blocks": 0}),
        (RobustTasks, {"rows": 0}),
        (RobustTasks, {"groups": 2.0}),
        (TopKThreshold, {"decay": -1.0}),
        (TopKThreshold, {"share": "0.2"}),
        (TopKThreshold, {"d_x": 0}),
    ],
)
def test_numbers_are_in_their_range(problem, number):
    (name,) = number
    with pytest.raises(ValueError, match=f"^{name}:"):
        problem(**{"num_blocks": 3, "generator": torch.Generator().manual_seed(0)} | number)
