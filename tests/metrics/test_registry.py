"""All metrics by name: each is the function of that name, and good scores are better than bad ones."""

import math
from typing import get_args

import pytest
import torch

from mmb import metrics
from mmb.metrics import METRICS, MetricName, evaluate
from random_rankings import random_labels, random_scores

FUNCTIONS = {
    "auc": lambda s, y: metrics.roc_auc(s, y),
    "pauc": lambda s, y: metrics.roc_auc(s, y, 0.2),
    "ap": metrics.average_precision,
    "two_way_pauc": lambda s, y: metrics.two_way_pauc(s, y, max_fpr=0.2, min_tpr=0.5),
    "pauc_above_tpr": lambda s, y: metrics.two_way_pauc(s, y, min_tpr=0.8),
    "tpr_at_fpr": lambda s, y: metrics.tpr_at_fpr(s, y, 0.2),
    "fpr_at_tpr": lambda s, y: metrics.fpr_at_tpr(s, y, 0.8),
    "precision_at_k": lambda s, y: metrics.precision_at_k(s, y, 100),
    "recall_at_k": lambda s, y: metrics.recall_at_k(s, y, 100),
    "enrichment_factor": lambda s, y: metrics.enrichment_factor(s, y, 0.01),
    "bedroc": lambda s, y: metrics.bedroc(s, y, 20.0),
    "ndcg": metrics.ndcg,
    "brier": lambda s, y: metrics.brier(s, y, from_logits=True),
    "log_loss": lambda s, y: metrics.log_loss(s, y, from_logits=True),
    "calibration_error": lambda s, y: metrics.calibration_error(s, y, 15, from_logits=True),
}


def test_every_name_has_its_metric():
    assert tuple(METRICS) == get_args(MetricName) == tuple(FUNCTIONS)


def test_evaluate_gives_what_the_single_functions_give():
    generator = torch.Generator().manual_seed(0)
    scores, labels = random_scores("mixed", 500, 6, generator), random_labels(500, 6, generator, missing=0.3)
    values = evaluate(scores, labels, max_fpr=0.2, also=tuple(METRICS))
    assert list(values) == ["roc_auc", "partial_auc", "average_precision", *METRICS]
    assert list(evaluate(scores, labels)) == ["roc_auc", "partial_auc", "average_precision"]
    for short, full in metrics.SHORT_NAMES.items():
        assert values[full].equal(values[short])
    for name, function in FUNCTIONS.items():
        torch.testing.assert_close(values[name], function(scores, labels), rtol=0, atol=1e-12)


@pytest.mark.parametrize("at_once", [1, 7, 300, 1000])
def test_sums_over_few_tasks_at_a_time_are_the_same(at_once, monkeypatch):
    """Some tasks have no label or no positive, and many are longer than what is summed at once."""
    generator = torch.Generator().manual_seed(0)
    scores = random_scores("mixed", 200, 40, generator)
    labels = random_labels(200, 40, generator, missing=0.3)
    labels[:, [0, 1, 17, 39]] = math.nan
    labels[:, 5:8] = labels[:, 5:8].clamp(max=0)
    expected = evaluate(scores, labels, also=tuple(METRICS))
    monkeypatch.setattr(metrics._ranking, "_AT_ONCE", at_once)
    for name, values in evaluate(scores, labels, also=tuple(METRICS)).items():
        torch.testing.assert_close(values, expected[name], rtol=0, atol=1e-12, equal_nan=True)
        assert int(values.isfinite().sum()) == 33, name


def test_a_better_model_gains():
    generator = torch.Generator().manual_seed(0)
    labels = random_labels(2000, 3, generator, rate=0.1)
    logits = random_scores("random", 2000, 3, generator) - 2
    good, bad = (evaluate(logits + way * labels, labels, also=tuple(METRICS)) for way in (4, -4))
    for name, metric in METRICS.items():
        gains = [metric.gain(float(found[name].mean())) for found in (good, bad)]
        assert gains[0] > gains[1], name


@pytest.mark.parametrize("name", METRICS)
def test_one_task_and_absent_classes(name):
    scores = torch.tensor([[0.1, 0.1, 0.1, 0.1], [0.9, 0.9, 0.9, 0.9]])
    labels = torch.tensor([[0, 1, 0, -1], [1, 1, 0, -1]])
    value = evaluate(scores, labels, also=[name])[name]
    assert value.dtype == torch.float64
    assert value.isnan().tolist() == [False, True, True, True]
    one = evaluate(scores[:, 0], labels[:, 0], also=[name])[name]
    assert one.shape == ()
    assert one == value[0]
    nothing = evaluate(scores, torch.zeros_like(labels), also=[name])[name]
    assert nothing.isnan().all()


def test_titles_tell_the_limit():
    assert METRICS["pauc"].title_at(0.05) == "pAUC 0.05"
    assert METRICS["tpr_at_fpr"].title_at(0.05) == "TPR at FPR 0.05"
    assert METRICS["ap"].title_at(0.05) == "AP"
    assert "0.05" in METRICS["tpr_at_fpr"].definition(0.05)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"also.*bedroc.*'f1'"):
        evaluate(torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), also=["f1"])
    with pytest.raises(ValueError, match="max_fpr"):
        evaluate(torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), max_fpr=math.nan)
