"""Deviations from quartiles, and squashing."""

import pytest
import torch

from mmb.data.inputs.quartiles import REACH, quartile_deviation, squash


def test_the_quartiles_of_a_normal_distribution_give_its_deviation():
    low, high = torch.distributions.Normal(3.0, 2.0).icdf(torch.tensor([0.25, 0.75])).tolist()
    assert quartile_deviation(low, high) == pytest.approx(2.0, rel=1e-3)


def test_squashed_values_keep_their_order_and_level_off():
    values = torch.tensor([-1e100, -5.0, -0.01, 0.0, 0.01, 5.0, 1e100], dtype=torch.float64)
    found = squash(values)
    assert (found.diff() > 0).all()
    torch.testing.assert_close(found, -squash(-values))
    torch.testing.assert_close(found[[0, 6]], torch.tensor([-REACH, REACH], dtype=torch.float64))
    torch.testing.assert_close(found[4], values[4], rtol=1e-5, atol=0)
    assert squash(values, reach=2.0).max() == pytest.approx(2.0)
