"""Cross-entropy against the textbook."""

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


def test_cross_entropy_without_gaps_is_the_plain_mean():
    scores, labels = full()
    ours = auc.CrossEntropy(labels).double()(scores, labels)
    assert float(ours) == pytest.approx(
        float(functional.binary_cross_entropy_with_logits(scores, labels.double())), rel=1e-12
    )


def test_cross_entropy_with_gaps_is_the_mean_over_each_tasks_labels():
    data = make_data()
    scores = data.model(data.inputs).detach()
    means = []
    for k in range(data.num_tasks):
        there = data.labels[:, k] >= 0
        means.append(
            functional.binary_cross_entropy_with_logits(scores[there, k], data.labels[there, k].double())
        )
    ours = auc.CrossEntropy(data.labels).double()(scores, data.labels)
    assert float(ours) == pytest.approx(float(torch.stack(means).mean()), rel=1e-12)


def test_cross_entropy_is_the_same_function_for_balanced_draws():
    """Half positives, half negatives drawn: still the mean over the task's labels, not over the draw."""
    data = make_data(rows=60, tasks=1)
    scores, labels = data.model(data.inputs).detach()[:, 0], data.labels[:, 0]
    objective = auc.CrossEntropy(labels).double()
    up, down = (labels == 1).nonzero().flatten(), (labels == 0).nonzero().flatten()
    whole = torch.cat([up.repeat(3), down.repeat(2)])  # other proportions, the same class means
    drawn = objective(scores[None, whole], labels[None, whole], torch.tensor([0]))
    assert float(drawn) == pytest.approx(float(objective(scores, labels)), rel=1e-12)
