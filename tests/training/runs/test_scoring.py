"""Metrics of runs, and decision thresholds: the lowest whose false positive rate is within a limit."""

import torch

from mmb.metrics import METRICS
from mmb.training.runs.scoring import decision_thresholds, rates_at, task_metrics


def test_the_usual_metrics_come_with_the_one_that_selects():
    generator = torch.Generator().manual_seed(0)
    logits, labels = (
        torch.randn(50, 3, generator=generator),
        torch.randint(-1, 2, (50, 3), generator=generator),
    )
    for select in METRICS:
        found = task_metrics(logits, labels, 0.1, select)
        assert list(found) == list(dict.fromkeys(("auc", "pauc", "ap", select)))
        assert all(values.isfinite().all() for values in found.values())
        nothing = task_metrics(logits, torch.full_like(labels, -1), 0.1, select)
        assert list(nothing) == list(found)
        assert all(values.isnan().all() for values in nothing.values())


def test_thresholds_are_the_lowest_within_the_rate():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(200, 6, generator=generator).round(decimals=1)  # with ties
    labels = torch.randint(-1, 2, (200, 6), generator=generator)
    labels[:, 5] = 1
    fprs = (0.05, 0.1, 0.3)
    thresholds = decision_thresholds(logits, labels, fprs)
    assert thresholds[:, 5].isnan().all()
    assert all(rate[5].isnan() for rate in rates_at(logits, labels, thresholds[0]))  # no threshold, no rate
    for limit, threshold in zip(fprs, thresholds, strict=True):
        fpr, _ = rates_at(logits, labels, threshold)
        assert (fpr[:5] <= limit).all()
        for task in range(5):
            negatives = logits[labels[:, task] == 0, task]
            lower = negatives[negatives < threshold[task]].max()
            assert (negatives > lower).double().mean() > limit  # the next lower one would be too low


def test_thresholds_of_round_rates_are_not_lost_to_rounding():
    logits, labels = torch.arange(30.0).unsqueeze(1), torch.zeros(30, 1, dtype=torch.int8)
    assert decision_thresholds(logits, labels, (0.1,)).item() == 26  # three of thirty are above
