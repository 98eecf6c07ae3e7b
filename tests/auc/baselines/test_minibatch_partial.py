"""Partial AUC of the mini-batch: the top negatives, and how their share falls."""

from __future__ import annotations

import pytest
import torch

from mmb import auc
from mmb.auc.baselines.minibatch_partial import top_part
from mmb.metrics import roc_auc
from mmb.models import mlp
from objective_bank import make_data


def test_minibatch_is_the_pair_loss_with_the_top_negatives():
    data = make_data(rows=40, tasks=3)
    scores = data.model(data.inputs).detach().requires_grad_()
    objective = auc.MiniBatchPartialAUC(data.labels, max_fpr=0.25, margin=0.8).double()
    objective(scores, data.labels).backward()
    plain = scores.detach().clone().requires_grad_()
    parts = []
    for k in range(3):
        h = torch.sigmoid(plain[:, k])
        up, down = h[data.labels[:, k] == 1], h[data.labels[:, k] == 0].sort(descending=True).values
        share = 0.25 * len(down)
        weight = (share - torch.arange(len(down), dtype=torch.float64)).clamp(0, 1)
        parts.append((((0.8 - up[:, None] + down) ** 2).mean(0) * weight).sum() / share)
    torch.stack(parts).mean().backward()
    torch.testing.assert_close(scores.grad, plain.grad, atol=1e-12, rtol=0)


@pytest.mark.parametrize("skew", [0.0, 0.5, 4.0])
def test_few_rows_give_the_top_part_of_all(skew):
    """With a large skew the highest negatives weigh so little that a few are not enough."""
    data = make_data(rows=40, tasks=3)
    scores = data.model(data.inputs).detach()
    entries = (
        auc.CrossEntropy(data.labels).double().entries(scores, data.labels, weights=(-skew * scores).exp())
    )
    expected = top_part(scores, entries.negative, 0.1)
    torch.testing.assert_close(auc.MiniBatchPartialAUC._top(entries, scores, 0.1), expected)
    few = top_part(scores, entries.negative, 0.1, among=7)
    assert torch.equal(few, expected) == (skew < 4)


def test_minibatch_share_falls_from_all_negatives_with_every_visit():
    data = make_data(rows=40, tasks=3)
    scores = data.model(data.inputs).detach()
    objective = auc.MiniBatchPartialAUC(data.labels, max_fpr=0.25, anneal=4).double()
    tasks = torch.tensor([2, 0])
    for visit in range(6):
        share = max(0.25 ** (visit / 4), 0.25)
        assert objective.current_share.tolist() == pytest.approx([share, 1.0, share], rel=1e-6)
        fixed = auc.MiniBatchPartialAUC(data.labels, max_fpr=share).double()
        sampled = scores.T[tasks], data.labels.T[tasks], tasks
        before = objective.eval()(*sampled)
        assert before == objective.train()(*sampled)
        torch.testing.assert_close(before, fixed(*sampled), rtol=1e-6, atol=0)
    assert auc.MiniBatchPartialAUC(data.labels).state_dict() == {}
    again = auc.MiniBatchPartialAUC(data.labels, max_fpr=0.25, anneal=4).double()
    again.load_state_dict(objective.state_dict())
    assert torch.equal(again.current_share, objective.current_share)
    with pytest.raises(ValueError, match="anneal"):
        auc.MiniBatchPartialAUC(data.labels, anneal=-1)


def test_annealing_keeps_minibatch_from_giving_all_rows_the_same_score():
    """Half of each score is noise: with the top tenth from the start scores stay together."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(1500, 60, generator=generator)
    signal = inputs @ torch.randn(60, 20, generator=generator) / 60**0.5
    noisy = signal + torch.randn(1500, 20, generator=generator)
    labels = (noisy > 1.2 * noisy.std()).to(torch.int8)
    spread, areas = [], []
    for anneal in (0, 150):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = mlp(60, [32], 20)
        objective = auc.MiniBatchPartialAUC(labels[:1000], anneal=anneal)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        rows = torch.Generator().manual_seed(1)
        for _ in range(150):
            chosen = torch.randint(1000, (64,), generator=rows)
            optimizer.zero_grad()
            objective.backward(model, auc.DenseBatch(inputs[chosen], labels[chosen]))
            optimizer.step()
        with torch.no_grad():
            scores = model(inputs[1000:])
        spread.append(float(scores.std(0).mean()))
        areas.append(float(roc_auc(scores, labels[1000:]).mean()))
    assert spread[1] > 3 * spread[0]
    assert areas[1] > areas[0] + 0.03
