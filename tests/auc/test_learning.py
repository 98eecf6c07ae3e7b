"""On a small imbalanced multi-task problem every objective, untuned, improves what it is for."""

from __future__ import annotations

import pytest
import torch

from mmb import auc
from mmb.metrics import roc_auc
from mmb.models import mlp

# objective, and the largest false positive rate of the metric it is for
CASES = {
    "cross-entropy": (auc.CrossEntropy, {}, None),
    "focal": (auc.Focal, {}, None),
    "minmax": (auc.MinMaxAUC, {}, None),
    "minmax-logit": (auc.MinMaxAUC, {"transform": "logit"}, None),
    "partial-practical": (auc.PartialAUC, {}, 0.1),
    "partial-full": (auc.PartialAUC, {"gradient": "full"}, 0.1),
    "partial-recentered": (auc.PartialAUC, {"transform": "recentered"}, 0.1),
    "pairwise-logistic": (auc.PairwisePartialAUC, {}, 0.1),
    "pairwise-hinge": (auc.PairwisePartialAUC, {"surrogate": "squared_hinge"}, 0.1),
    "two-way": (auc.TwoWayPartialAUC, {}, 0.1),
    "two-way-full": (auc.TwoWayPartialAUC, {"gradient": "full", "tau1": 0.2}, 0.1),
    "average-precision": (auc.AveragePrecision, {}, 0.1),
    "average-precision-logistic": (auc.AveragePrecision, {"surrogate": "logistic"}, 0.1),
    "ndcg": (auc.NDCG, {}, 0.1),
    "ndcg-k": (auc.NDCG, {"k": 60}, 0.1),
    "recall": (auc.RecallAtFPR, {"fpr": 0.05}, 0.1),
    "fpr-at-recall": (auc.FPRAtRecall, {}, None),
    "pauci": (auc.PAUCI, {}, 0.1),
    "staco": (auc.STACO, {}, 0.1),
    "minibatch": (auc.MiniBatchPartialAUC, {}, 0.1),
    "sopa": (auc.SOPA, {}, 0.1),
    "sopas": (auc.SOPAs, {}, 0.1),
}


def problem(seed, rows=1200, tasks=6):
    """Six related tasks, 3% to 10% positives, a tenth of the labels missing; half of the rows held out."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 12, generator=generator)
    features = torch.tanh(inputs @ torch.randn(12, 8, generator=generator))
    scores = features @ torch.randn(8, tasks, generator=generator)
    scores += 0.3 * torch.randn(rows, tasks, generator=generator)
    cut = scores.sort(0, descending=True).values[[40, 50, 60, 80, 100, 120], range(tasks)]
    labels = (scores > cut).to(torch.int8)
    labels[torch.rand(rows, tasks, generator=generator) < 0.1] = -1
    return inputs, labels, generator


@pytest.mark.parametrize("kind", ["dense", "sampled"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(2))
def test_improves_its_metric(name, kind, seed):
    make, options, max_fpr = CASES[name]
    inputs, labels, generator = problem(seed)
    half = len(inputs) // 2
    objective = make(labels[:half], **options)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = mlp(12, [16], labels.shape[1])
    optimizer = torch.optim.Adam([*model.parameters(), *objective.parameters()], lr=1e-2)
    sampler = auc.TaskSampler(labels[:half], 3, 24, steps_per_epoch=60, generator=seed)

    def metric():
        with torch.no_grad():
            return float(roc_auc(model(inputs[half:]), labels[half:], max_fpr=max_fpr).mean())

    start = metric()
    for draw in sampler:
        if kind == "sampled":
            batch = draw.batch(inputs)
        else:
            rows = torch.randint(0, half, (128,), generator=generator)
            batch = auc.DenseBatch(inputs[rows], labels[rows], rows=rows)
        optimizer.zero_grad()
        numbers = objective.backward(model, batch)
        optimizer.step()
    assert all(bool(value.isfinite()) for value in numbers.values())
    assert metric() > start + 0.05
