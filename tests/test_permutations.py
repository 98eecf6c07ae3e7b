import pytest
import torch

from mmb._permutations import permutation


@pytest.mark.parametrize("count", [0, 1, 10, 1001, 40_000, 300_000])
def test_they_are_those_of_torch(count):
    mine, other = (torch.Generator().manual_seed(count) for _ in range(2))
    found = permutation(count, mine)
    assert found.dtype == torch.int32
    assert torch.equal(found.long(), torch.randperm(count, generator=other))
    assert torch.equal(mine.get_state(), other.get_state())
