"""NDCG: the gradient of the surrogate on all data, and the threshold of the first rows."""

from __future__ import annotations

import math

import pytest
import torch

from exact_blocks import differences, quantile
from mmb import auc
from objective_bank import make, make_data


@torch.no_grad()
def surrogate_of(objective, logits, labels, settle=False):
    """One minus the soft NDCG with exact thresholds, over index lists; `settle` puts the objective there."""
    losses = []
    for k in range(labels.shape[1]):
        known = labels[:, k] >= 0
        z, y = logits[known, k], labels[known, k] == 1
        h = torch.sigmoid(z - torch.log(y.sum() / (~y).sum())) if objective.transform == "recentered" else z
        short = objective.margin - h[y][:, None] + h
        own = torch.tensor(objective.margin)
        if objective.surrogate == "logistic":
            loss, unit = torch.log1p(short.exp()), torch.log1p(own.double().exp())
        else:
            loss, unit = short.clamp(min=0) ** 2, own**2
        gain = 1 / torch.log2(1 + (loss / unit).sum(1))
        first = int(y.sum())
        if objective.top is not None:
            top, first = objective.top, min(first, 4)
            cut = quantile(z, 4 / len(z), top.tau1, top.tau2)
            gain = gain * torch.sigmoid((z[y] - cut) / top.temperature)
            if settle:
                bell = torch.sigmoid((z - cut) / top.tau1) * torch.sigmoid((cut - z) / top.tau1)
                top.value[k, 0], top.hessian[k, 0] = cut, bell.mean() / top.tau1 + top.tau2
        losses.append(1 - gain.sum() / sum(1 / math.log2(1 + rank) for rank in range(1, first + 1)))
    return float(torch.stack(losses).mean())


@pytest.mark.parametrize("name", ["ndcg", "ndcg-k-full"])
def test_estimate_on_all_rows_is_the_gradient_of_the_surrogate(name):
    data = make_data(seed=3, rows=16, tasks=3)
    objective, scores = make(name, data, randomize=False), data.model(data.inputs).detach()
    objective.shift_pull = 0.0
    objective.per_ideal.copy_(make_ideal(data.labels, 4 if objective.top else 99))  # not rounded
    if objective.top is not None:
        objective.top.own_rates.copy_(4 / (data.labels >= 0).sum(0).double())
    value = surrogate_of(objective, scores, data.labels, settle=True)
    leaf = scores.clone().requires_grad_()
    loss = objective(leaf, data.labels, rows=torch.arange(16))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(value, abs=1e-7)
    expected = differences(lambda moved: surrogate_of(objective, moved, data.labels), scores)
    torch.testing.assert_close(leaf.grad, expected, atol=5e-8, rtol=1e-5)


def make_ideal(labels, first):
    """Positives over the largest sum of discounts."""
    counts = (labels == 1).sum(0).tolist()
    return torch.tensor(
        [n / sum(1 / math.log2(1 + rank) for rank in range(1, min(n, first) + 1)) for n in counts]
    )


@pytest.mark.parametrize("k", [None, 5])
def test_equals_libauc_on_one_task_without_gaps(k):
    losses = pytest.importorskip("libauc.losses")
    generator = torch.Generator().manual_seed(1)
    labels = (torch.arange(30) < 8).long().unsqueeze(1)  # it wants the positives first
    objective = auc.NDCG(labels, k=k, beta=0.4, temperature=0.5, transform="logit").double()
    objective.shift_pull = 0.0
    options = {"topk": -1} if k is None else {"topk": 5, "topk_version": "prac", "sigmoid_alpha": 2.0}
    peer = losses.NDCGLoss(8, 1, 30, 8, gamma0=1.0, device="cpu", **options)
    peer.u, peer.lambda_q = peer.u.double(), peer.lambda_q.double()
    ideal = sum(1 / math.log2(1 + rank) for rank in range(1, min(8, k or 8) + 1))
    batch = {
        "rating": labels.T,
        "user_id": torch.tensor([0]),
        "num_pos_items": torch.tensor([8]),
        "ideal_dcg": torch.tensor([ideal]),
        "user_item_id": torch.arange(30).unsqueeze(0),
    }
    for _ in range(3):
        scores = torch.randn(30, 1, generator=generator, dtype=torch.float64)
        mine, theirs = scores.clone().requires_grad_(), scores.T.clone().requires_grad_()
        if k is not None:
            peer.lambda_q[0] = float(objective.top.value)  # its threshold takes steps of another size
        objective(mine, labels, rows=torch.arange(30)).backward()
        peer(theirs, batch).backward()
        torch.testing.assert_close(mine.grad, theirs.grad.T, rtol=1e-5, atol=1e-9)
        peer.gamma0 = 0.4  # it starts its averages at zero, so its first batch has to set them


def test_the_threshold_of_the_first_rows_is_tracked_and_placed():
    generator = torch.Generator().manual_seed(2)
    labels = (torch.rand(1000, 2, generator=generator) < 0.1).long()
    labels[500:, 1] = -1  # so that the first 20 rows are another share of them
    scores = torch.randn(1000, 2, generator=generator) * 2 + 3
    objective = auc.NDCG(labels, k=20, tau1=0.1)
    known = [scores[:, 0], scores[:500, 1]]
    expected = torch.stack([values.sort(descending=True).values[20] for values in known])
    for _ in range(300):
        rows = torch.randperm(1000, generator=generator)[:200]
        objective(scores[rows], labels[rows], rows=rows)
    torch.testing.assert_close(objective.top.value[:, 0], expected, rtol=0, atol=0.5)
    objective.warm_start(scores, labels)
    torch.testing.assert_close(objective.top.value[:, 0], expected)
    assert float(objective.diagnostics()["threshold"]) == pytest.approx(float(expected.mean()))


@pytest.mark.parametrize("options", [{"k": 0}, {"beta": 0.0}, {"surrogate": "hinge"}, {"gradient": "exact"}])
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        auc.NDCG(torch.tensor([[1], [0]]), **options)
