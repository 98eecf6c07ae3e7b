"""Losses that do not see a shift of all scores of a task: something must hold it."""

from __future__ import annotations

import pytest
import torch

from mmb import auc
from mmb.auc.parts.shift import hold_shift
from mmb.models import mlp
from objective_bank import make, make_data

BLIND = {
    "pairwise": (auc.PairwisePartialAUC, {}),
    "SOPA": (auc.SOPA, {"transform": "logit"}),
    "SOPA-s": (auc.SOPAs, {"transform": "logit"}),
    "MB": (auc.MiniBatchPartialAUC, {"transform": "logit"}),
}


def trained(kind, options, backwards, pull):
    """Scores after training in single precision by Adam, the rows of each batch in one order or the other."""
    generator = torch.Generator().manual_seed(0)
    inputs, weight = torch.randn(200, 8, generator=generator), torch.randn(8, 3, generator=generator)
    labels = (inputs @ weight + torch.randn(200, 3, generator=generator) > 2).to(torch.int8)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = mlp(8, [16], 3)
    objective = kind(labels, **options)
    objective.shift_pull = pull
    optimizer = torch.optim.Adam([*model.parameters(), *objective.parameters()], lr=0.02)
    for _ in range(60):
        rows = torch.randperm(200, generator=generator)[:64]
        rows = rows.flip(0) if backwards else rows
        optimizer.zero_grad()
        objective.backward(model, auc.DenseBatch(inputs[rows], labels[rows], None, rows))
        optimizer.step()
    return model(inputs).detach()


@pytest.mark.parametrize("name", BLIND)
def test_adam_takes_the_same_path_whatever_the_order_of_summation(name):
    kind, options = BLIND[name]
    held, again = (trained(kind, options, backwards, pull=1e-3) for backwards in (False, True))
    torch.testing.assert_close(held, again, atol=1e-3, rtol=0)
    loose, again = (trained(kind, options, backwards, pull=0.0) for backwards in (False, True))
    assert float((loose - again).abs().max()) > 2e-3


def test_the_pull_is_toward_the_log_odds_and_leaves_differences_of_class_means():
    data = make_data()
    objective = make("pairwise-logistic", data)
    logits = data.rand(24, 5).requires_grad_()
    entries = objective.entries(logits, data.labels)
    center = objective.log_odds()
    value, derivative = hold_shift(entries, center)
    (expected,) = torch.autograd.grad(value.sum(), logits)
    torch.testing.assert_close(derivative.detach(), expected)
    ups, downs = ((weights > 0).double() for weights in (entries.positive, entries.negative))
    up, down = ((derivative * kind).sum(0) for kind in (ups, downs))
    torch.testing.assert_close(up, down)  # a step moves the mean scores of both classes alike
    middle = sum((logits * kind).sum(0) / kind.sum(0) for kind in (ups, downs)) / 2
    assert bool((torch.sign(up) == torch.sign(middle - center)).all())
