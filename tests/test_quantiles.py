"""Thresholds at false positive rates."""

import pytest
import torch

from mmb.quantiles import negative_quantiles


def by_definition(scores, mass, rate):
    """The lowest negative score with at most that share of the mass above it, in a loop; ties as given."""
    found = []
    for task in range(scores.shape[1]):
        there = mass[:, task] > 0
        own, weight = scores[there, task], mass[there, task].double()
        above = torch.stack([weight[own > score].sum() for score in own])
        within = own[above <= weight.sum() * rate * (1 + 1e-9)]
        found.append(within.min())
    return torch.stack(found)


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.29, 0.5, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_at_most_the_share_of_the_mass_lies_above(rate, weighted):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(100, 5, generator=generator)
    mass = (torch.rand(100, 5, generator=generator) < 0.7).double()
    if weighted:
        mass = mass * torch.rand(100, 5, generator=generator)
    found = negative_quantiles(scores.masked_fill(mass == 0, torch.nan), mass, [rate])
    torch.testing.assert_close(found[0], by_definition(scores, mass, rate), rtol=0, atol=0)


def test_round_shares_are_not_lost_to_rounding():
    scores, mass = torch.arange(100.0).unsqueeze(1), torch.ones(100, 1, dtype=torch.bool)
    assert negative_quantiles(scores, mass, [0.29, 0.57]).flatten().tolist() == [70.0, 42.0]


def test_no_negatives_no_threshold():
    assert negative_quantiles(torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.bool), [0.1]).isnan().all()
    assert negative_quantiles(torch.zeros(0, 2), torch.zeros(0, 2), [0.1, 1.0]).isnan().all()
