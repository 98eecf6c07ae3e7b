from itertools import pairwise

import pytest
import torch

from mmb.data.splits import grouped_split, random_split, split_rows, stratified_split, united


def test_every_stratum_is_divided_by_the_fractions():
    strata = torch.tensor([0] * 50 + [1] * 10 + [2] * 40)[torch.randperm(100, generator=torch.Generator())]
    split = stratified_split(strata, (0.6, 0.2, 0.2), torch.Generator().manual_seed(0))
    counts = {part: torch.bincount(strata[rows], minlength=3).tolist() for part, rows in split.items()}
    assert counts == {"train": [30, 6, 24], "valid": [10, 2, 8], "test": [10, 2, 8]}
    assert sorted(torch.cat(list(split.values())).tolist()) == list(range(100))


def test_many_strata_of_few_rows_are_divided_by_the_fractions_together():
    strata = torch.arange(1000) // 2
    split = stratified_split(strata, (0.8, 0.1, 0.1), torch.Generator().manual_seed(0))
    assert [len(rows) for rows in split.values()] == pytest.approx([800, 100, 100], abs=5)
    folds = [split_rows(600, (1, 0, 0), 0, labels=torch.eye(600), folds=5, fold=k)["test"] for k in range(5)]
    assert [len(rows) for rows in folds] == pytest.approx([120] * 5, abs=5)


def test_no_part_is_empty_because_every_group_has_the_last_positive_of_a_task():
    groups, labels = torch.arange(40) % 3, torch.eye(40)
    split = split_rows(40, (0.8, 0.1, 0.1), 0, labels=labels, groups=groups)
    assert all(len(rows) for rows in split.values())


def test_the_seed_decides():
    first, again, other = (
        random_split(30, (0.5, 0.25, 0.25), torch.Generator().manual_seed(s)) for s in (0, 0, 1)
    )
    assert all(torch.equal(first[part], again[part]) for part in first)
    assert not torch.equal(first["train"], other["train"])


@pytest.mark.parametrize("rows", [1, 7, 30, 1001, 3000])
@pytest.mark.parametrize("fractions", [(0.7, 0.2, 0.1), (1, 0, 0), (0.5, 0.5, 0), (1 / 3, 0, 2 / 3)])
def test_a_random_split_is_that_of_one_stratum(rows, fractions):
    found = random_split(rows, fractions, torch.Generator().manual_seed(3))
    expected = stratified_split(torch.zeros(rows).long(), fractions, torch.Generator().manual_seed(3))
    assert all(torch.equal(found[part], expected[part]) for part in expected)
    assert all(torch.equal(split_rows(rows, fractions, 3)[part], expected[part]) for part in expected)


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


def test_a_group_that_is_larger_than_all_training_rows_trains():
    groups = torch.tensor([5] * 9 + [1, 2])
    split = grouped_split(groups, (0.8, 0.1, 0.1))
    assert {part: rows.tolist() for part, rows in split.items()} == {
        "train": [*range(9)],
        "valid": [],
        "test": [9, 10],
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


def _random_case(case):
    """Rows in groups, with rare labels, gaps and times, and options of a split."""
    generator = torch.Generator().manual_seed(case)

    def draw(low, high):
        return int(torch.randint(low, high, (1,), generator=generator))

    n, m = draw(12, 200), draw(1, 8)
    rate = torch.rand(m, generator=generator) * 0.3
    labels = (torch.rand(n, m, generator=generator) < rate).to(torch.int8)
    labels[torch.rand(n, m, generator=generator) < 0.3] = -1
    groups = torch.randint(0, draw(4, n), (n,), generator=generator)
    times = torch.randint(0, draw(3, 40), (n,), generator=generator).double()
    return n, labels, groups, times, draw(3, 7)


@pytest.mark.parametrize("case", range(60))
def test_no_split_leaks(case):
    """Whatever is asked for: parts are disjoint and complete, groups whole, and time goes one way."""
    n, labels, groups, times, folds = _random_case(case)
    stratified, grouped, timed, folded = ((case >> bit) & 1 for bit in range(4))
    options = {"groups": groups if grouped else None, "times": times if timed else None}
    if not timed:
        options |= {"labels": labels if stratified else None, "folds": folds if folded else 0}
    tests = []
    for fold in range(folds if folded and not timed else 1):
        split = split_rows(n, (0.6, 0.2, 0.2), 0, **options, fold=fold)
        again = split_rows(n, (0.6, 0.2, 0.2), 0, **options, fold=fold)
        assert all(torch.equal(split[part], again[part]) for part in split)
        rows = torch.cat(list(split.values()))
        assert torch.equal(rows.sort().values, torch.arange(n))
        if grouped:
            assert all(
                not {*groups[split[a]].tolist()} & {*groups[split[b]].tolist()}
                for a, b in (("train", "valid"), ("train", "test"), ("valid", "test"))
            )
        if timed and not grouped:
            train, valid, test = (times[split[part]] for part in ("train", "valid", "test"))
            assert not len(valid) or train.max() < valid.min()
            assert not len(test) or torch.cat([train, valid]).max() < test.min()
        if timed and grouped:
            assert not len(split["test"]) or times[split["train"]].max() <= times[split["test"]].max()
        tests.append(split["test"])
    if folded and not timed:
        assert torch.equal(torch.cat(tests).sort().values, torch.arange(n))


@pytest.mark.parametrize("sizes", [[1, 30, 1], [30, 1, 1], [1, 1, 30], [1, 1, 1, 40], [5, 90, 2, 2], [9]])
def test_time_goes_one_way_whatever_the_numbers_of_rows(sizes):
    times = torch.arange(len(sizes)).double().repeat_interleave(torch.tensor(sizes))
    split = split_rows(len(times), (0.8, 0.1, 0.1), 0, times=times)
    filled = [times[rows] for rows in split.values() if len(rows)]
    assert len(filled) == min(3, len(sizes))
    assert all(a.max() < b.min() for a, b in pairwise(filled))


def test_rows_are_united_also_by_way_of_others():
    groups, others = torch.tensor([0, 0, 1, 1, 2, 3]), torch.tensor([5, 6, 6, 7, 8, 8])
    assert united(groups, others).tolist() == [0, 0, 0, 0, 2, 2]
    assert united(None, others) is others
    assert united(groups, None) is groups


@pytest.mark.parametrize("case", range(40))
def test_every_part_has_positives_of_every_task_that_has_enough(case):
    n, labels, _, _, folds = _random_case(case)
    for options in ({}, {"folds": folds}):
        split = split_rows(n, (0.8, 0.1, 0.1), case, labels=labels, **options)
        positives = torch.stack([(labels[rows] == 1).sum(0) for rows in split.values()])
        parts = options.get("folds", 3)
        enough = (labels == 1).sum(0) >= parts * labels.shape[1]  # whichever tasks a row is positive for
        assert (positives[:, enough] > 0).all()
        assert all(len(rows) for rows in split.values())


def test_positives_are_divided_by_the_fractions():
    labels = (torch.rand(20_000, 3, generator=torch.Generator().manual_seed(0)) < 0.02).to(torch.int8)
    split = split_rows(20_000, (0.6, 0.2, 0.2), 0, labels=labels)
    shares = (labels[split["valid"]] == 1).sum(0) / (labels == 1).sum(0)
    assert torch.allclose(shares, torch.full((3,), 0.2), atol=0.01)


def test_groups_of_any_size_fill_all_parts():
    split = split_rows(12, (0.8, 0.1, 0.1), 0, groups=torch.tensor([5] * 10 + [1, 2]))
    assert sorted(map(len, split.values())) == [1, 1, 10]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folds": 2}, "folds"),
        ({"folds": 5, "fold": 5}, "folds"),
        ({"folds": 11}, "folds"),
        ({"folds": 3, "times": torch.arange(10.0)}, "time"),
    ],
)
def test_what_does_not_go_together_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        split_rows(10, (0.8, 0.1, 0.1), 0, **options)
