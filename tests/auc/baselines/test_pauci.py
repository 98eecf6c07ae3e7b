"""PAUCI: its level, and what the minimum over it is."""

from __future__ import annotations

import pytest
import torch

from mmb import auc


def test_settled_it_is_the_pair_loss_with_the_top_negatives():
    """With little smoothing, and a, b, s and the dual at their optimum."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.arange(60) < 20).long().unsqueeze(1)
    scores = torch.randn(60, 1, generator=generator, dtype=torch.float64)
    objective = auc.PAUCI(labels, max_fpr=0.25, temperature=1e-4).double()
    objective.warm_start(scores, labels)
    h = torch.sigmoid(scores[:, 0])
    expected = ((1 - h[:20, None] + h[20:].topk(10).values) ** 2).mean()
    value = objective(scores, labels)
    assert float(value.detach()) == pytest.approx(float(expected), rel=1e-3)


def test_the_level_settles_where_the_share_of_negatives_is_above():
    generator = torch.Generator().manual_seed(1)
    labels = (torch.rand(400, 2, generator=generator) < 0.2).long()
    scores = torch.randn(400, 2, generator=generator)
    objective = auc.PAUCI(labels, max_fpr=0.2, temperature=0.01)
    optimizer = torch.optim.SGD(objective.parameters(), lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        objective(scores, labels).backward()
        optimizer.step()
    h = torch.sigmoid(scores)
    loss = (h - objective.mean_negative) ** 2 + 2 * objective.dual * h
    above = ((loss > objective.level) & (labels == 0)).sum(0) / (labels == 0).sum(0)
    torch.testing.assert_close(above, torch.tensor([0.2, 0.2]), rtol=0, atol=0.02)


@pytest.mark.parametrize("options", [{"max_fpr": 0.0}, {"temperature": 0.0}, {"lr_dual": 1.0}])
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        auc.PAUCI(torch.tensor([[1], [0]]), **options)
