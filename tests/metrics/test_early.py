"""Metrics of the first rows against scikit-learn, RDKit and torchmetrics; ties against all their orders."""

import itertools
import math

import numpy as np
import pytest
import sklearn.metrics
import torch

from mmb.metrics import bedroc, enrichment_factor, ndcg, precision_at_k, recall_at_k
from random_rankings import by_task, random_labels, random_scores, ranking_cases

CLOSE = {"rtol": 0, "atol": 1e-9, "equal_nan": True}


def in_order(metric):
    """A metric of labels in falling order of scores, as one of labels and scores without ties."""
    return lambda y, s: metric(y[np.argsort(-s, kind="stable")])


def over_orders(metric):
    """The mean of a metric of ordered labels over all orders of tied rows."""

    def mean(y, s):
        values = sorted(set(s.tolist()), reverse=True)
        groups = [itertools.permutations(y[s == value].tolist()) for value in values]
        return np.mean([metric(np.concatenate(order)) for order in itertools.product(*groups)])

    return mean


def hits(k):
    return lambda y: y[:k].sum()


def rdkit_bedroc(alpha):
    scoring = pytest.importorskip("rdkit.ML.Scoring.Scoring")
    return lambda y: scoring.CalcBEDROC(y[:, None], 0, alpha)


def rdkit_enrichment(fraction):
    scoring = pytest.importorskip("rdkit.ML.Scoring.Scoring")
    # RDKit has no value for all rows
    return lambda y: (scoring.CalcEnrichment(y[:, None], 0, [fraction]) or [1.0])[0]


def untied_cases():
    generator = torch.Generator().manual_seed(1)
    for n, missing in ((2, 0.0), (5, 0.2), (60, 0.0), (999, 0.5), (1000, 0.0)):
        labels = random_labels(n, 6, generator, missing, rate=0.4)
        yield random_scores("random", n, 6, generator) + labels.nan_to_num(0), labels


def tiny_tied_cases():
    generator = torch.Generator().manual_seed(2)
    for kind, n in itertools.product(("tied", "few", "constant"), (2, 3, 4, 6)):
        yield random_scores(kind, n, 6, generator), random_labels(n, 6, generator, 0.1, rate=0.5)


@pytest.mark.parametrize("alpha", [0.5, 20.0, 160.9])
def test_bedroc_is_that_of_rdkit(alpha):
    expected = rdkit_bedroc(alpha)
    for scores, labels in untied_cases():
        torch.testing.assert_close(
            bedroc(scores, labels, alpha), by_task(in_order(expected), scores, labels), **CLOSE
        )
    for scores, labels in tiny_tied_cases():
        torch.testing.assert_close(
            bedroc(scores, labels, alpha), by_task(over_orders(expected), scores, labels), **CLOSE
        )


@pytest.mark.parametrize("fraction", [0.001, 0.01, 0.07, 0.1, 0.5, 1.0])
def test_enrichment_factor_is_that_of_rdkit(fraction):
    expected = rdkit_enrichment(fraction)
    for scores, labels in untied_cases():
        torch.testing.assert_close(
            enrichment_factor(scores, labels, fraction), by_task(in_order(expected), scores, labels), **CLOSE
        )
    for scores, labels in tiny_tied_cases():
        torch.testing.assert_close(
            enrichment_factor(scores, labels, fraction),
            by_task(over_orders(expected), scores, labels),
            **CLOSE,
        )


@pytest.mark.parametrize("k", [1, 2, 3, 10, 1000])
def test_rates_at_k_with_all_orders_of_ties(k):
    for scores, labels in tiny_tied_cases():
        found = over_orders(hits(k))
        expected = by_task(lambda y, s, found=found: found(y, s) / min(k, len(y)), scores, labels)
        torch.testing.assert_close(precision_at_k(scores, labels, k), expected, **CLOSE)
        expected = by_task(lambda y, s, found=found: found(y, s) / y.sum(), scores, labels)
        torch.testing.assert_close(recall_at_k(scores, labels, k), expected, **CLOSE)


@pytest.mark.parametrize("k", [1, 10, 100])
def test_rates_at_k_and_ndcg_are_those_of_torchmetrics(k):
    functional = pytest.importorskip("torchmetrics.functional.retrieval")

    def by(metric, **options):
        return lambda y, s: metric(torch.from_numpy(s), torch.from_numpy(y).long(), top_k=k, **options)

    for scores, labels in untied_cases():
        scores = scores.sigmoid()  # theirs leaves out positives with a score below zero
        for ours, theirs in (
            (precision_at_k, by(functional.retrieval_precision, adaptive_k=True)),
            (recall_at_k, by(functional.retrieval_recall)),
            (ndcg, by(functional.retrieval_normalized_dcg)),
        ):
            expected = by_task(theirs, scores, labels)  # computed in float32; the tests above are exact
            torch.testing.assert_close(ours(scores, labels, k), expected, rtol=0, atol=3e-7, equal_nan=True)


@pytest.mark.parametrize("k", [None, 1, 2, 7, 50, 1000])
def test_ndcg_is_that_of_sklearn(k):
    def expected(y, s):
        return sklearn.metrics.ndcg_score(y[None], s[None], k=k)

    for scores, labels in ranking_cases():
        torch.testing.assert_close(ndcg(scores, labels, k), by_task(expected, scores, labels), **CLOSE)


def test_best_worst_and_constant_scores():
    labels = torch.tensor([1.0] * 5 + [0.0] * 495)
    assert enrichment_factor(labels, labels) == pytest.approx(100)
    assert enrichment_factor(-labels, labels) == 0
    assert enrichment_factor(torch.zeros(500), labels) == pytest.approx(1)
    assert bedroc(labels, labels) == pytest.approx(1)
    assert bedroc(-labels, labels) == pytest.approx(0, abs=1e-12)
    assert bedroc(labels, labels, 5000.0) == pytest.approx(1)  # exp(5000) is not finite
    assert precision_at_k(labels, labels, 10) == 0.5
    # where exp(-alpha / n) is zero, the first rank alone counts: to one of the best ranking
    assert bedroc(torch.tensor([0.1, 0.5, 0.3]), torch.tensor([0, 1, 0]), 1e6) == 1
    assert bedroc(torch.tensor([0.1, 0.5, 0.3]), torch.tensor([1, 0, 0]), 1e6) == 0
    assert bedroc(torch.tensor([0.5, 0.5, 0.3]), torch.tensor([1, 0, 0]), 1e6) == 0.5
    assert precision_at_k(torch.zeros(500), labels, 10) == pytest.approx(0.01)
    assert recall_at_k(torch.zeros(500), labels, 10) == pytest.approx(0.02)
    assert ndcg(labels, labels) == pytest.approx(1)


@pytest.mark.parametrize(
    ("metric", "value", "message"),
    [
        (precision_at_k, 0, "k.*at least 1.*0"),
        (recall_at_k, -1, "k.*at least 1.*-1"),
        (ndcg, 0, "k.*at least 1.*0"),
        (ndcg, 1.5, "k.*whole.*1.5"),
        (precision_at_k, 1.5, "k.*whole.*1.5"),
        (recall_at_k, math.nan, "k.*whole.*nan"),
        (enrichment_factor, 0, r"fraction.*\(0, 1\].*0"),
        (enrichment_factor, 1.5, r"fraction.*\(0, 1\].*1.5"),
        (enrichment_factor, "1%", "fraction.*'1%'"),
        (bedroc, "20", "alpha.*positive.*'20'"),
        (bedroc, 0.0, "alpha.*positive.*0"),
        (bedroc, math.inf, "alpha.*positive.*inf"),
        (bedroc, math.nan, "alpha.*positive.*nan"),
    ],
)
def test_bad_parameters(metric, value, message):
    with pytest.raises(ValueError, match=message):
        metric(torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), value)
