"""Focal loss: its special case, and extreme scores."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from mmb import auc
from objective_bank import make_data


def full(tasks=4, rows=40):
    data = make_data(rows=rows, tasks=tasks)
    labels = data.labels.clamp(min=0)
    return data.model(data.inputs).detach(), labels


def test_focal_without_focus_is_balanced_cross_entropy():
    scores, labels = full()
    ours = auc.Focal(labels, gamma=0.0, alpha=0.5).double()(scores, labels)
    plain = functional.binary_cross_entropy_with_logits(scores, labels.double())
    assert float(ours) == pytest.approx(0.5 * float(plain), rel=1e-12)


@pytest.mark.parametrize("gamma", [0.5, 2.0])
@pytest.mark.parametrize("sure", [1e4, -1e4])
def test_focal_survives_extreme_scores(gamma, sure):
    _, labels = full()
    scores = torch.where(labels == 1, sure, -sure).double().requires_grad_()
    loss = auc.Focal(labels, gamma=gamma).double()(scores, labels)
    loss.backward()
    assert loss.isfinite()
    assert scores.grad.isfinite().all()
