"""Which blocks are drawn: uniform, different, repeatable, resumable."""

from itertools import islice

import pytest
import torch

import mmb


@pytest.mark.parametrize(("m", "k"), [(5, 5), (12, 4), (100, 3)])
def test_draws_are_different_and_uniform(m, k):
    draws = 2000
    found = torch.stack(list(islice(mmb.BlockSampler(m, k, 1), draws))).sort(1).values
    assert found.shape == (draws, k)
    assert (found.diff(dim=1) > 0).all()
    counts = found.flatten().bincount(minlength=m)
    expected = draws * k / m
    chi_square = ((counts - expected) ** 2 / expected).sum() / max(1 - k / m, 1e-9)
    assert chi_square < m - 1 + 5 * (2 * m) ** 0.5


def test_own_generator_and_resume():
    sampler, twin = mmb.BlockSampler(100, 5, 3), mmb.BlockSampler(100, 5, torch.Generator().manual_seed(3))
    torch.manual_seed(0)
    first = list(islice(sampler, 4))
    torch.manual_seed(1)  # the global generator plays no part
    assert all(map(torch.equal, first, islice(twin, 4)))
    saved = sampler.state_dict()
    following = list(islice(sampler, 4))
    twin.load_state_dict(saved)
    assert all(map(torch.equal, following, islice(twin, 4)))


def test_draws_stay_the_same_from_version_to_version():
    assert next(iter(mmb.BlockSampler(100, 3, 3))).tolist() == [86, 48, 37]
    assert next(iter(mmb.BlockSampler(100, 12, 3)))[:4].tolist() == [86, 42, 89, 92]


@pytest.mark.parametrize("k", [0, 6])
def test_bad_size(k):
    with pytest.raises(ValueError, match=f"blocks_per_step.*{k}"):
        mmb.BlockSampler(5, k)


@pytest.mark.parametrize("arguments", [(4.0, 2), (4, True), (True, 1), (0, 0)])
def test_numbers_of_blocks_are_whole(arguments):
    with pytest.raises(ValueError, match="blocks"):
        mmb.BlockSampler(*arguments)


def test_the_old_ways_say_the_new_ones():
    with pytest.raises(TypeError, match="iterate"):
        mmb.BlockSampler(5, 2)()
    with pytest.raises(TypeError, match="generator"):
        mmb.BlockSampler(5, 2, seed=1)
    with pytest.raises(ImportError, match=r"mmb\.block_sampling"):
        _ = mmb.sampling


def test_batches_of_a_block_all_come_before_any_returns():
    order, blocks = mmb.BatchOrder(4, 6, 1), torch.tensor([2, 0])
    twin = mmb.BatchOrder(4, 6, 2)
    rounds = []
    for number in range(3):
        found = torch.stack([order(blocks) for _ in range(6)])
        assert torch.equal(found.sort(0).values, torch.arange(6)[:, None].expand(6, 2))
        order(torch.tensor([3]))  # others do not matter
        rounds.append(found)
        if number == 1:
            twin.load_state_dict(order.state_dict())
    assert not torch.equal(rounds[0], rounds[1])
    assert torch.equal(rounds[2], torch.stack([twin(blocks) for _ in range(6)]))
    with pytest.raises(ValueError, match="batches"):
        mmb.BatchOrder(4, 0)
