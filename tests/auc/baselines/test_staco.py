"""STACO: its variables per positive, and LibAUC's."""

from __future__ import annotations

import pytest
import torch

from mmb import auc


def test_settled_it_is_the_mean_over_the_worst_pairs():
    """At its optimum the loss is the mean over the worst positives of their mean over the worst negatives."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.arange(60) < 20).long().unsqueeze(1)
    scores = torch.randn(60, 1, generator=generator, dtype=torch.float64)
    objective = auc.STACO(labels, max_fpr=0.25, min_tpr=0.5).double()
    h = torch.sigmoid(scores[:, 0])
    losses = (1 - h[:20, None] + h[20:]) ** 2
    inner = losses.topk(10, 1).values.mean(1)  # a quarter of the negatives
    expected = float(inner.topk(10).values.mean())  # half of the positives
    for rate, steps in ((0.1, 200), (0.01, 500), (0.001, 1000)):
        objective.lr_positive = objective.lr_level = rate
        for _ in range(steps):
            objective(scores, labels, rows=torch.arange(60))
    value = float(objective.eval()(scores, labels, rows=torch.arange(60)))
    assert value == pytest.approx(expected, rel=0.01)
    chosen = inner.argsort()[10:]
    assert bool((objective.own.value[chosen[1:], 1] > 0.9).all())  # duals of the worst positives


def test_equals_libauc_on_one_task_without_gaps():
    peer_module = pytest.importorskip("libauc.losses.auc")
    generator = torch.Generator().manual_seed(1)
    labels = (torch.rand(40, 1, generator=generator) < 0.3).long()
    labels = labels.sort(0, descending=True).values  # so that positives have the numbers of their rows
    objective = auc.STACO(labels, max_fpr=0.4, min_tpr=0.3, margin=0.8, transform="logit").double()
    objective.shift_pull = 0.0
    peer = peer_module.tpAUC_CVaR_loss(40, threshold=0.8, theta_0=0.7, theta_1=0.4, device="cpu")
    for name in ("u", "s1", "s2", "dual_var"):
        setattr(peer, name, getattr(peer, name).double())
    positives = int(labels.sum())
    for _ in range(4):
        scores = torch.randn(40, 1, generator=generator, dtype=torch.float64)
        mine, theirs = scores.clone().requires_grad_(), scores.clone().requires_grad_()
        objective(mine, labels, rows=torch.arange(40)).backward()
        peer(theirs, labels, torch.arange(40)).backward()
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-6, atol=1e-12)
        expected = torch.cat([peer.s1[:positives], peer.dual_var[:positives]], 1)
        torch.testing.assert_close(objective.own.value, expected, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(objective.level, peer.s2[0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("options", [{"max_fpr": 0.0}, {"min_tpr": 1.0}, {"lr_level": 0.0}])
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        auc.STACO(torch.tensor([[1], [0]]), **options)
