"""Margins, transforms and other arguments of objectives."""

from __future__ import annotations

import pytest
import torch

from mmb import auc
from objective_bank import make_data


@pytest.mark.parametrize(
    ("objective", "name", "value"),
    [
        (auc.PairwisePartialAUC, "margin", float("nan")),
        (auc.PairwisePartialAUC, "margin", float("inf")),
        (auc.PairwisePartialAUC, "capacity", float("nan")),
        (auc.PairwisePartialAUC, "capacity", 8.0),
        (auc.Focal, "gamma", float("nan")),
        (auc.MiniBatchPartialAUC, "anneal", float("nan")),
    ],
)
def test_values_that_are_not_numbers_are_refused(objective, name, value):
    with pytest.raises(ValueError, match=f"{name}.* got {value}"):
        objective(torch.tensor([0, 1, 1]), **{name: value})


@pytest.mark.parametrize("make", [auc.MiniBatchPartialAUC, auc.SOPA, auc.SOPAs])
def test_recentered_scores_are_those_of_logits_less_the_log_odds(make):
    data = make_data(rows=30)
    logits, rows = data.model(data.inputs).detach(), torch.arange(30)
    plain, recentered = (make(data.labels, transform=scores).double() for scores in ("sigmoid", "recentered"))
    positives, negatives = (data.labels == 1).sum(0), (data.labels == 0).sum(0)
    shifted = (logits + (positives / negatives).log()).requires_grad_()
    logits.requires_grad_()
    plain(logits, data.labels, rows=rows).backward()
    recentered(shifted, data.labels, rows=rows).backward()
    torch.testing.assert_close(shifted.grad, logits.grad)
    assert float(logits.grad.abs().max()) > 0


@pytest.mark.parametrize("margin", [0.0, -1.0])
@pytest.mark.parametrize(
    "make", [auc.MinMaxAUC, auc.PartialAUC, auc.MiniBatchPartialAUC, auc.SOPA, auc.SOPAs]
)
def test_margins_that_rank_the_wrong_way_are_refused(make, margin):
    with pytest.raises(ValueError, match=f"margin.*positive.*{margin}"):
        make(torch.tensor([[1], [0]]), margin=margin)


def test_pairs_may_do_without_a_margin_where_the_loss_never_ends():
    labels = torch.tensor([[1], [0]])
    assert auc.PairwisePartialAUC(labels, margin=0.0).margin == 0
    for options in ({"margin": -1.0}, {"margin": 0.0, "surrogate": "squared_hinge"}):
        with pytest.raises(ValueError, match=r"margin.*logistic"):
            auc.PairwisePartialAUC(labels, **options)


def test_unknown_scores_are_named():
    with pytest.raises(ValueError, match=r"transform.*recentered.*softmax"):
        auc.SOPAs(torch.tensor([[1], [0]]), transform="softmax")


@pytest.mark.parametrize(
    ("make", "bad"),
    [
        (auc.PartialAUC, {"transform": "probit"}),
        (auc.PartialAUC, {"lr_dual": 0.0}),
        (auc.MinMaxAUC, {"transform": "rank"}),
        (auc.MinMaxAUC, {"lr_dual": 1.0}),
        (auc.PairwisePartialAUC, {"surrogate": "hinge"}),
        (auc.PairwisePartialAUC, {"capacity": 0}),
        (auc.MiniBatchPartialAUC, {"max_fpr": 0.0}),
        (auc.SOPA, {"max_fpr": 1.5}),
        (auc.SOPA, {"lr_positive": 0.0}),
        (auc.SOPAs, {"temperature": 0.0}),
        (auc.SOPAs, {"beta": 0.0}),
        (auc.Focal, {"gamma": -1.0}),
        (auc.Focal, {"alpha": 1.0}),
    ],
)
def test_other_arguments_out_of_range_are_refused(make, bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        make(make_data().labels, **bad)


def test_scores_that_nothing_can_change_are_refused():
    labels = torch.tensor([[0, 1], [1, 0]])
    model = torch.nn.Linear(3, 2).requires_grad_(False)
    batch = auc.DenseBatch(torch.randn(2, 3), labels)
    with pytest.raises(ValueError, match=r"scores: expected logits that depend on a parameter.*detach"):
        auc.CrossEntropy(labels).backward(model, batch)
