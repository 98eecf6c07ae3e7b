"""Random streams of a run."""

import torch

from mmb.training.loop.randomness import derive_seed, own_randomness


def test_seeds_of_purposes_differ_and_the_world_is_left_alone():
    assert len({derive_seed(seed, purpose) for seed in range(9) for purpose in ("model", "sampler")}) == 18
    before = torch.get_rng_state()
    with own_randomness(3, torch.device("cpu")):
        first = torch.rand(3)
    with own_randomness(3, torch.device("cpu")):
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), before)
