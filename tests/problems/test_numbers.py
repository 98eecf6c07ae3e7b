"""Numbers that would make a known problem another one."""

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
    with pytest.raises(ValueError, match=f"{name}: expected a positive number"):
        problem(3, torch.Generator().manual_seed(0), **number)
