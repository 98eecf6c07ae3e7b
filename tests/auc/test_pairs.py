"""Pairs: sums over pairs equal those of the full tensor of rows x rows x tasks."""

from __future__ import annotations

import pytest
import torch

from mmb import auc
from mmb.auc.parts.pairs import (
    LogisticLosses,
    Pairs,
    PairsAbove,
    SquaredHinges,
    WholeSquares,
    pair_loss,
)
from mmb.auc.parts.per_positive import PerPositive
from objective_bank import make_data


def prepared(seed=0, capacity=None):
    """Entries of a batch with gaps, and their positives."""
    data = make_data(seed=seed, rows=12, tasks=4)
    objective = auc.CrossEntropy(data.labels).double()
    entries = objective.entries(data.rand(12, 4), data.labels, rows=torch.arange(12))
    return entries, Pairs.of(entries, capacity)


@pytest.mark.parametrize("capacity", [None, 40])
@pytest.mark.parametrize("itself", [True, False])
@pytest.mark.parametrize(
    ("surrogate", "margin", "kind"),
    [
        ("squared_hinge", 0.7, SquaredHinges),
        ("squared_hinge", 1.0, WholeSquares),
        ("logistic", 1.0, LogisticLosses),
    ],
)
def test_sums_are_those_of_all_pairs(surrogate, margin, kind, itself, capacity):
    entries, pairs = prepared(capacity=capacity)  # whose scores are between zero and one
    losses = pairs.losses(entries.logits, margin, surrogate, itself=itself, spread=1.0)
    assert isinstance(losses, kind)
    h = entries.logits.T
    loss, slope = pair_loss(margin - h.unsqueeze(2) + h.unsqueeze(1), surrogate)  # [k, i, j]
    if not itself:
        other = 1 - torch.eye(12, dtype=h.dtype)
        loss, slope = loss * other, slope * other
    weight = torch.rand(2, 12, 4, dtype=h.dtype, generator=torch.Generator().manual_seed(1))
    weight[1, :, 2] = 0  # nothing to compare with
    of_positive, share = entries.positive.T.unsqueeze(2), pairs.weight
    torch.testing.assert_close(losses.of_entries(share), (of_positive * loss).sum(1).T)
    both, of_both = losses.of_positives(weight), losses.slope_of_entries(torch.stack([share, -3 * share]))
    for place, one in enumerate(weight):
        by_task = one.T.unsqueeze(1)
        expected = (by_task * loss).sum(2)[pairs.columns, pairs.rows]
        rising, falling = (of_positive * by_task * slope).sum(1), (of_positive * by_task * slope).sum(2)
        for found, d_own, d_entries in (
            (*losses.of_positives(one), losses.slope_of_entries(share)),
            (both[0][place], both[1][place], of_both[place] / (1, -3)[place]),
        ):
            torch.testing.assert_close(found, expected)
            d_score = pairs.less_own(one * d_entries, share * d_own)
            torch.testing.assert_close(d_score, (rising - falling).T)


def test_whole_squares_are_exact_in_single_precision_where_a_ranking_is_nearly_perfect():
    """All losses of a positive are tiny there, as differences of moments would not be."""
    data = make_data(seed=4, rows=12, tasks=4, dtype=torch.float32)
    scores = torch.where(data.labels == 1, 1 - 1e-3 * data.rand(12, 4), 1e-3 * data.rand(12, 4))
    entries = auc.CrossEntropy(data.labels).entries(scores, data.labels)
    pairs, weight = Pairs.of(entries), entries.negative
    sums = [
        pairs.losses(scores, 1.0, "squared_hinge", itself=False, spread=spread).of_positives(weight)
        for spread in (1.0, 2.0)
    ]
    for found, expected in zip(*sums, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=0)


@pytest.mark.parametrize("level", [-0.3, 0.0, 0.4])
def test_pairs_above_a_level(level):
    entries, pairs = prepared(seed=2)
    weight, levels = entries.negative, torch.full_like(pairs.weight, level)
    top = PairsAbove.of(pairs, entries.logits, 0.7, levels, weight)
    h = entries.logits.T.clone().requires_grad_()
    short = 0.7 - h[pairs.columns, pairs.rows].unsqueeze(1) + h[pairs.columns]
    excess = short.clamp(min=0) ** 2 - level
    chosen = weight.T[pairs.columns] * (excess > 0)
    torch.testing.assert_close(top.excess, (chosen * excess).sum(1).detach())
    mass, d_score = top.lower(pairs.weight)
    torch.testing.assert_close(mass, chosen.sum(1))
    (expected,) = torch.autograd.grad((pairs.weight * (chosen * excess).sum(1)).sum(), h)
    torch.testing.assert_close(d_score, expected.T)


def test_logistic_pairs_of_any_distance_are_finite():
    labels = torch.tensor([[1], [0]])
    entries = auc.CrossEntropy(labels).entries(torch.tensor([[-1e6], [1e6]]), labels)
    losses = Pairs.of(entries).losses(entries.logits, 1.0, "logistic", itself=False)
    loss, slope = losses.of_positives(torch.tensor([[0.0], [1.0]]))
    assert slope.tolist() == [1.0]
    assert losses.slope_of_entries(torch.ones(1)).tolist() == [[0.0], [1.0]]
    assert 80 < float(loss) < 100  # of a loss, not of its slope, the value has a limit


def test_variables_are_found_though_the_batch_lacks_positives_of_its_rows():
    labels = torch.tensor([[1, 1, 1], [0, 1, 1], [1, 0, -1], [0, 0, 0]])
    values = PerPositive(auc.Labels(labels), torch.zeros(3), start=0.0)
    objective = auc.CrossEntropy(labels)
    rows = torch.tensor([2, 0, 1])
    for gaps in ([], [(1, 0)], [(1, 1), (2, 2)]):
        seen = labels[rows].clone()
        for place in gaps:
            seen[place] = -1
        entries = objective.entries(torch.zeros(3, 3), seen, rows=rows)
        pairs = Pairs.of(entries)
        expected = rows[pairs.rows] * 3 + pairs.columns
        assert values.keys[values.find(entries, pairs)].tolist() == expected.tolist()
    entries = objective.entries(torch.zeros(1, 3), torch.tensor([[1, 0, 0]]), rows=torch.tensor([9]))
    with pytest.raises(ValueError, match="row 9"):
        values.find(entries, Pairs.of(entries))


def single(spread=1.0, shift=0.0):
    """Entries in single precision, with scores of any spread, and their positives."""
    data = make_data(seed=4, rows=12, tasks=4, dtype=torch.float32)
    scores = spread * data.rand(12, 4) + shift
    entries = auc.CrossEntropy(data.labels).entries(scores, data.labels)
    return entries, Pairs.of(entries)


@pytest.mark.parametrize(("spread", "products"), [(8.0, True), (200.0, False)])
def test_odds_are_products_if_they_stay_finite_and_the_same(spread, products, monkeypatch):
    entries, pairs = single(spread)
    weight = entries.negative

    def sums():
        losses = pairs.losses(entries.logits, 1.0, "logistic", itself=True)
        assert (losses.own is not None) == products
        return *losses.of_positives(weight), losses.slope_of_entries(pairs.weight)

    fast = sums()
    monkeypatch.setattr(Pairs, "_small_exponents", lambda *_: None)
    products = False
    for found, expected in zip(fast, sums(), strict=True):  # relative: also where slopes are tiny
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_sums_of_hinges_are_those_of_written_squares(shift):
    entries, pairs = single(3.0, shift)
    losses = pairs.losses(entries.logits, 1.0, "squared_hinge", itself=False)
    written, weight = losses.short.double(), entries.negative.T[pairs.columns]
    squares = (written**2 * weight).sum(1), (2 * written * weight).sum(1)
    for found, expected in zip(losses.of_positives(entries.negative), squares, strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=1e-6 * (1 + shift), atol=1e-5)
    of_positive = torch.zeros(4, 12).double().index_add(0, pairs.columns, pairs.weight[:, None] * written**2)
    found = losses.of_entries(pairs.weight).T.double()
    torch.testing.assert_close(found, of_positive, rtol=1e-6 * (1 + shift), atol=1e-4 * (1 + shift / 10))
