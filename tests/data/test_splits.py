import pytest
import torch

from mmb.data.splits import grouped_split, random_split, stratified_split


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


def test_groups_stay_whole_and_the_largest_train():
    groups = torch.tensor([7, 7, 7, 7, 7, 1, 1, 2, 3, 4])
    split = grouped_split(groups, (0.6, 0.2, 0.2))
    # 7 fits into the six training rows; 1 no longer does, but fits into valid; 4 and 3 (ties go by the last
    # first row) fill train and test in turn.
    assert {part: rows.tolist() for part, rows in split.items()} == {
        "train": [0, 1, 2, 3, 4, 9],
        "valid": [5, 6],
        "test": [7, 8],
    }


def test_grouped_split_is_that_of_deepchem():
    generator = torch.Generator().manual_seed(3)
    groups = torch.randint(0, 60, (300,), generator=generator)
    train, valid, test = _deepchem(groups.tolist(), 0.8, 0.1)
    split = grouped_split(groups, (0.8, 0.1, 0.1))
    assert {part: {*rows.tolist()} for part, rows in split.items()} == {
        "train": train,
        "valid": valid,
        "test": test,
    }


def _deepchem(groups, train_share, valid_share):
    """DeepChem's published rule, written down independently of ours."""
    sets = {}
    for row, group in enumerate(groups):
        sets.setdefault(group, []).append(row)
    ordered = [rows for _, rows in sorted(sets.items(), key=lambda kv: (len(kv[1]), kv[1][0]), reverse=True)]
    train_cut, valid_cut = train_share * len(groups), (train_share + valid_share) * len(groups)
    train, valid, test = [], [], []
    for rows in ordered:
        if len(train) + len(rows) > train_cut:
            if len(train) + len(valid) + len(rows) > valid_cut:
                test += rows
            else:
                valid += rows
        else:
            train += rows
    return {*train}, {*valid}, {*test}
