"""RecallAtFPR and its mirror: the hypergradient through the threshold."""

from __future__ import annotations

import pytest
import torch

from exact_blocks import differences, quantile
from mmb import auc
from objective_bank import make, make_data


@torch.no_grad()
def true_value(objective, logits, labels, settle=False):
    """F with exact thresholds, over index lists; `settle` puts the objective there."""
    total = 0.0
    for k in range(labels.shape[1]):
        up, down = logits[labels[:, k] == 1, k], logits[labels[:, k] == 0, k]
        part = objective.tracked
        cut = quantile(down, float(part.rates), part.tau1, part.tau2)
        short = objective.margin + cut - up
        loss = torch.log1p(short.exp()) if objective.surrogate == "logistic" else short.clamp(min=0) ** 2
        total += float(loss.mean()) / labels.shape[1]
        if settle:
            part.value[k, 0] = cut
            bell = torch.sigmoid((down - cut) / part.tau1) * torch.sigmoid((cut - down) / part.tau1)
            part.hessian[k, 0] = bell.mean() / part.tau1 + part.tau2
    return total


@pytest.mark.parametrize("name", ["recall", "recall-hinge"])
def test_estimate_is_the_gradient_of_the_true_function(name):
    data = make_data(seed=3, rows=16, tasks=3)
    objective, scores = make(name, data), data.model(data.inputs).detach()
    objective.shift_pull = 0.0
    value = true_value(objective, scores, data.labels, settle=True)
    leaf = scores.clone().requires_grad_()
    loss = objective(leaf, data.labels)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(value, abs=1e-12)
    expected = differences(lambda moved: true_value(objective, moved, data.labels), scores)
    torch.testing.assert_close(leaf.grad, expected, atol=2e-8, rtol=1e-6)
    assert float(leaf.grad[data.labels == 0].sum()) > 1e-2  # negatives are pushed, by the threshold alone


@pytest.mark.parametrize("dense", [True, False])
def test_the_mirror_is_the_same_with_scores_negated_and_classes_exchanged(dense):
    data = make_data()
    exchanged = torch.where(data.labels < 0, data.labels, 1 - data.labels)
    mirror, plain = auc.FPRAtRecall(data.labels, recall=0.7), auc.RecallAtFPR(exchanged, fpr=1 - 0.7)
    batch = data.dense() if dense else data.sampled([0, 3])
    flipped = torch.where(batch.labels < 0, batch.labels, 1 - batch.labels)
    tasks = None if dense else batch.tasks
    for _ in range(3):
        scores = data.rand(*batch.labels.shape) * 4 - 2
        mine, theirs = scores.clone().requires_grad_(), (-scores).requires_grad_()
        losses = mirror(mine, batch.labels, tasks), plain(theirs, flipped, tasks)
        for loss in losses:
            loss.backward()
        torch.testing.assert_close(*losses)
        torch.testing.assert_close(mine.grad, -theirs.grad)
    torch.testing.assert_close(mirror.tracked_positive.value, plain.tracked.value)


def test_training_raises_recall_at_the_rate():
    data = make_data(seed=5, rows=200, tasks=4)
    direction = torch.randn(4, 4, generator=data.generator).double()
    data.labels.copy_(data.inputs @ direction > 1.5)  # a ranking that can be learned
    objective = auc.RecallAtFPR(data.labels, fpr=0.05).double()
    optimizer = torch.optim.Adam(data.model.parameters(), lr=0.02)

    def recall():
        scores = data.model(data.inputs).detach()
        cut = objective.thresholds(scores, data.labels)
        return float((((scores > cut) & (data.labels == 1)).sum(0) / (data.labels == 1).sum(0)).mean())

    before = recall()
    for _ in range(200):
        optimizer.zero_grad()
        objective.backward(data.model, data.dense())
        optimizer.step()
    assert before < 0.6
    assert recall() > 0.9


@pytest.mark.parametrize(
    ("make_one", "options"),
    [
        (auc.RecallAtFPR, {"fpr": 0.0}),
        (auc.RecallAtFPR, {"surrogate": "hinge"}),
        (auc.RecallAtFPR, {"margin": -1.0}),
        (auc.FPRAtRecall, {"margin": float("inf")}),
        (auc.FPRAtRecall, {"recall": 1.0}),
    ],
)
def test_bad_options_are_refused(make_one, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        make_one(torch.tensor([[1], [0]]), **options)
