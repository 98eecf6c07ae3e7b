"""Which blocks are drawn: uniform, different, repeatable, resumable."""

import pytest
import torch

import mmb


@pytest.mark.parametrize(("m", "k"), [(5, 5), (12, 4), (500, 3)])
def test_draws_are_different_and_uniform(m, k):
    sampler = mmb.BlockSampler(m, k, seed=1)
    counts = torch.zeros(m)
    draws = 6000
    for _ in range(draws):
        blocks = sampler()
        assert blocks.shape == (k,)
        assert blocks.unique().numel() == k
        counts[blocks] += 1
    expected = draws * k / m
    chi_square = ((counts - expected) ** 2 / expected).sum() / max(1 - k / m, 1e-9)
    assert counts.sum() == draws * k
    assert chi_square < m - 1 + 5 * (2 * m) ** 0.5


def test_own_generator_and_resume():
    sampler, twin = mmb.BlockSampler(100, 5, seed=3), mmb.BlockSampler(100, 5, seed=3)
    torch.manual_seed(0)
    first = [sampler() for _ in range(4)]
    torch.manual_seed(1)  # the global generator plays no part
    assert all(torch.equal(one, twin()) for one in first)
    saved = sampler.state_dict()
    following = [sampler() for _ in range(4)]
    twin.load_state_dict(saved)
    assert all(torch.equal(one, twin()) for one in following)


@pytest.mark.parametrize("k", [0, 6])
def test_bad_size(k):
    with pytest.raises(ValueError, match="blocks_per_step: expected between 1 and num_blocks=5"):
        mmb.BlockSampler(5, k)
