"""Folds: every task has its share, and no network goes without a class."""

import torch

from mmb.estimators.folds import assign_folds


def test_every_fold_has_its_share_of_every_task():
    generator = torch.Generator().manual_seed(0)
    rates = torch.tensor([0.3, 0.1, 0.02])
    labels = (torch.rand(2000, 3, generator=generator) < rates).to(torch.int8)
    fold = assign_folds(labels, 4, generator)
    assert fold.bincount().tolist() == [500] * 4
    for number in range(4):
        shares = (labels[fold == number] == 1).sum(0) / (labels == 1).sum(0)
        torch.testing.assert_close(shares, torch.full((3,), 0.25), atol=0.05, rtol=0)


def test_no_network_goes_without_a_class():
    labels = torch.zeros(50, 3, dtype=torch.int8)
    labels[7, 0] = 1  # one positive
    labels[:, 1], labels[9, 1] = 1, 0  # one negative
    labels[:5, 2] = 1
    for seed in range(20):
        fold = assign_folds(labels, 3, torch.Generator().manual_seed(seed))
        assert fold[7] == fold[9] == -1
        assert (fold >= 0).sum() == 48


def test_one_network_goes_without_a_quarter_of_the_rows():
    labels = (torch.arange(24) % 2).to(torch.int8).unsqueeze(1)
    out = assign_folds(labels, 1, torch.Generator()) == 0
    assert labels[out].sum() == (labels[out] == 0).sum() == 3
    labels[1:] = 0  # the only positive, and so nothing to calibrate by
    labels[0] = 1
    fold = assign_folds(labels, 1, torch.Generator())
    assert fold[0] == -1
