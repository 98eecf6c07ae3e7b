import pytest
import torch

from mmb.data.splits import random_split, stratified_split


def test_every_stratum_is_divided_by_the_fractions():
    strata = torch.tensor([0] * 50 + [1] * 10 + [2] * 40)[torch.randperm(100, generator=torch.Generator())]
    split = stratified_split(strata, (0.6, 0.2, 0.2), torch.Generator().manual_seed(0))
    counts = {part: torch.bincount(strata[rows], minlength=3).tolist() for part, rows in split.items()}
    assert counts == {"train": [30, 6, 24], "valid": [10, 2, 8], "test": [10, 2, 8]}
    assert sorted(torch.cat(list(split.values())).tolist()) == list(range(100))


def test_the_seed_decides():
    first, again, other = (
        random_split(30, (0.5, 0.25, 0.25), torch.Generator().manual_seed(s)) for s in (0, 0, 1)
    )
    assert all(torch.equal(first[part], again[part]) for part in first)
    assert not torch.equal(first["train"], other["train"])


@pytest.mark.parametrize("fractions", [(1.0,), (0.5, 0.2, 0.2), (1.2, -0.1, -0.1), (0.0, 0.5, 0.5)])
def test_fractions_must_make_sense(fractions):
    with pytest.raises(ValueError, match="fractions"):
        random_split(10, fractions, torch.Generator())


def test_empty_parts_are_allowed():
    split = random_split(7, (1, 0, 0), torch.Generator())
    assert [len(split[part]) for part in ("train", "valid", "test")] == [7, 0, 0]
