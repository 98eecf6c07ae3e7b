"""Metrics against scikit-learn, pairwise counting and numerical integration."""

import math
from functools import partial

import numpy as np
import pytest
import sklearn.metrics
import torch

from mmb.metrics import _keys, average_precision, evaluate, roc_auc, roc_curve, two_way_pauc
from random_rankings import by_task, random_labels, random_scores

LIMITS = [None, 0.01, 0.1, 0.29, 0.5, 1.0]
TOLERANCE = {"rtol": 0, "atol": 1e-9}


def assert_as_sklearn(scores, labels):
    for max_fpr in LIMITS:
        expected = by_task(partial(sklearn.metrics.roc_auc_score, max_fpr=max_fpr), scores, labels)
        torch.testing.assert_close(roc_auc(scores, labels, max_fpr), expected, equal_nan=True, **TOLERANCE)
    expected = by_task(sklearn.metrics.average_precision_score, scores, labels)
    torch.testing.assert_close(average_precision(scores, labels), expected, equal_nan=True, **TOLERANCE)
    return expected


@pytest.mark.parametrize("missing", [0.0, 0.6])
@pytest.mark.parametrize("kind", ["random", "tied", "few", "constant", "mixed"])
@pytest.mark.parametrize("n", [60, 601])
def test_equal_to_sklearn(kind, n, missing):
    generator = torch.Generator().manual_seed(n)
    scores = random_scores(kind, n, 3, generator)
    expected = assert_as_sklearn(scores, random_labels(n, 3, generator, missing))
    assert not expected.isnan().any()


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_equal_to_sklearn_on_tiny_inputs(n):
    generator = torch.Generator().manual_seed(n)
    for kind in ("random", "tied", "constant"):
        scores = random_scores(kind, n, 15, generator)
        labels = random_labels(n, 15, generator, missing=0.2, rate=0.5)
        expected = assert_as_sklearn(scores, labels)
        assert expected.isnan().any()  # tasks without one of the classes are among them


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("missing", [0.0, 0.6])
def test_long_rows_sorted_either_way_are_equal_to_sklearn(dtype, missing, monkeypatch):
    """Rows are sorted one by one, by radix, or all at once: the same numbers to the last bit."""
    generator = torch.Generator().manual_seed(0)
    scores = random_scores("mixed", 2**15 + 3, 3, generator).to(dtype)
    scores[:, 2] = scores[:, 2].round()
    labels = random_labels(len(scores), 3, generator, missing)
    threads = torch.get_num_threads()
    found = []
    for one_by_one in (True, False):
        monkeypatch.setattr(_keys, "_radix_is_best", lambda keys, choice=one_by_one: choice)
        found.append([*evaluate(scores, labels).values(), *roc_curve(scores, labels)])
    assert all(torch.equal(left, right) for left, right in zip(*found, strict=True))
    assert torch.get_num_threads() == threads
    metrics = (
        sklearn.metrics.roc_auc_score,
        partial(sklearn.metrics.roc_auc_score, max_fpr=0.1),
        sklearn.metrics.average_precision_score,
    )
    for metric, value in zip(metrics, found[0], strict=False):
        torch.testing.assert_close(value, by_task(metric, scores.double(), labels), **TOLERANCE)


@pytest.mark.parametrize("rate", [0.001, 0.999])
def test_equal_to_sklearn_with_a_rare_class(rate):
    generator = torch.Generator().manual_seed(0)
    scores = random_scores("mixed", 3000, 2, generator)
    assert_as_sklearn(scores, random_labels(3000, 2, generator, rate=rate))


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8, torch.int64],
)
def test_scores_of_every_dtype(dtype):
    generator = torch.Generator().manual_seed(0)
    scores = (20 * torch.randn(500, 3, generator=generator)).abs().to(dtype)
    if dtype.is_signed:
        scores[::2] *= -1
    labels = random_labels(500, 3, generator, missing=0.3)
    expected = roc_auc(scores.double(), labels)
    torch.testing.assert_close(roc_auc(scores, labels), expected, rtol=0, atol=0)
    by_sklearn = by_task(sklearn.metrics.roc_auc_score, scores.double(), labels)
    torch.testing.assert_close(expected, by_sklearn, **TOLERANCE)


def test_scores_are_compared_exactly():
    labels = torch.tensor([0, 1])
    assert roc_auc(torch.tensor([1.0, 1.0 + 2**-50], dtype=torch.float64), labels) == 1
    assert roc_auc(torch.tensor([2**60, 2**60 + 1]), labels) == 1
    assert roc_auc(torch.tensor([-(2**63) + 1, 2**63 - 1]), labels) == 1
    assert roc_auc(torch.tensor([0.0, -0.0]), labels) == 0.5
    assert roc_auc(torch.tensor([0.0, 1e-45]), labels) == 1
    assert roc_auc(torch.tensor([-1e-45, -0.0]), labels) == 1
    assert roc_auc(torch.tensor([-3.4e38, 3.4e38]), labels) == 1


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.float16, torch.float64])
def test_labels_of_every_dtype(dtype):
    generator = torch.Generator().manual_seed(0)
    scores = random_scores("mixed", 300, 3, generator)
    labels = random_labels(300, 3, generator, missing=0.5)
    same = labels.to(dtype) if dtype.is_floating_point else labels.nan_to_num(nan=-1).to(dtype)
    torch.testing.assert_close(
        average_precision(scores, same), average_precision(scores, labels), rtol=0, atol=0
    )


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
def test_labels_without_a_sign(dtype):
    labels = torch.tensor([0, 1, 1, 0])
    assert roc_auc(torch.tensor([0.1, 0.2, 0.3, 0.25]), labels.to(dtype)) == 0.75


def test_scores_at_missing_labels_count_for_nothing():
    generator = torch.Generator().manual_seed(0)
    scores = random_scores("tied", 400, 5, generator)
    labels = random_labels(400, 5, generator, missing=0.4)
    expected = evaluate(scores, labels)
    for junk in (math.nan, math.inf, -math.inf, 0.0, -1e300):
        changed = scores.masked_fill(labels.isnan(), junk)
        for name, value in evaluate(changed, labels).items():
            torch.testing.assert_close(value, expected[name], rtol=0, atol=0)


def test_one_task_gives_a_scalar():
    scores, labels = torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1])
    for value, expected in (
        (roc_auc(scores, labels), 0.75),
        (average_precision(scores, labels), 5 / 6),
        (two_way_pauc(scores, labels), 0.75),
    ):
        assert value.shape == ()
        assert value.dtype == torch.float64
        assert value.item() == pytest.approx(expected, abs=1e-12)
    assert roc_auc(scores[:, None], labels[:, None]).shape == (1,)


def test_task_without_one_of_the_classes_is_nan_and_leaves_the_others_alone():
    scores = torch.tensor([[0.1, 0.1, 0.1, 0.1], [0.9, 0.9, 0.9, 0.9]])
    labels = torch.tensor([[0, 1, 0, -1], [1, 1, 0, -1]])
    values = [
        *evaluate(scores, labels).values(),
        two_way_pauc(scores, labels, max_fpr=0.3, min_tpr=0.5),
    ]
    for value in values:
        assert value[0] == 1
        assert value[1:].isnan().all()
        assert value.nanmean() == 1


def test_inputs_are_left_alone_and_need_no_gradient():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(60, 8, generator=generator)
    for scores in (values.clone(), values.clone().T, values[:, 0].clone(), values.clone()[::2, ::2]):
        labels = (torch.rand(scores.shape, generator=generator) < 0.5).float()
        labels[3] = math.nan
        before = scores.clone(), labels.clone()
        expected = evaluate(scores.clone(), labels)
        result = evaluate(scores.requires_grad_(), labels)
        roc_curve(scores, labels)
        assert scores.detach().equal(before[0])
        assert labels.nan_to_num(-1).equal(before[1].nan_to_num(-1))
        assert all(not value.requires_grad and value.equal(expected[name]) for name, value in result.items())


# Two-way partial AUC


def pairwise_two_way(scores, labels, max_fpr, min_tpr, min_fpr):
    """Mean over pairs of 1[s+ > s-], each entry weighted by the part of it inside the limits."""
    positives = np.sort(scores[labels == 1])[::-1]
    negatives = np.sort(scores[labels == 0])[::-1]

    def weights(count, low, high):
        edges = np.clip(np.arange(count + 1) / count, low, high)
        return np.diff(edges)

    w_pos, w_neg = weights(len(positives), min_tpr, 1), weights(len(negatives), min_fpr, max_fpr)
    wins = (positives[:, None] > negatives) + 0.5 * (positives[:, None] == negatives)
    return w_pos @ wins @ w_neg / (w_pos.sum() * w_neg.sum())


TWO_WAY = [
    (1.0, 0.0, 0.0),
    (0.3, 0.0, 0.0),
    (1.0, 0.8, 0.0),
    (0.4, 0.5, 0.0),
    (0.37, 0.61, 0.0),
    (0.5, 0.25, 0.1),
    (0.9, 0.999, 0.05),
    (0.01, 0.9, 0.0),
]


@pytest.mark.parametrize(("max_fpr", "min_tpr", "min_fpr"), TWO_WAY)
def test_two_way_pauc_equals_the_pairwise_count(max_fpr, min_tpr, min_fpr):
    generator = torch.Generator().manual_seed(1)
    scores = random_scores("random", 120, 9, generator)
    labels = random_labels(120, 9, generator, missing=0.2)
    scores = scores + 1.5 * labels.nan_to_num(0)
    values = two_way_pauc(scores, labels, max_fpr=max_fpr, min_tpr=min_tpr, min_fpr=min_fpr)
    expected = by_task(lambda y, s: pairwise_two_way(s, y, max_fpr, min_tpr, min_fpr), scores, labels)
    torch.testing.assert_close(values, expected, **TOLERANCE)


@pytest.mark.parametrize(("max_fpr", "min_tpr", "min_fpr"), TWO_WAY)
@pytest.mark.parametrize("kind", ["tied", "few", "constant", "mixed"])
def test_two_way_pauc_with_ties_is_the_area_of_the_clipped_curve(kind, max_fpr, min_tpr, min_fpr):
    def clipped_area(y, s):
        fpr, tpr, _ = sklearn.metrics.roc_curve(y, s, drop_intermediate=False)
        # At a vertical step np.interp may take either end; between the points the curve is a straight line.
        crossing = [
            a + (b - a) * (min_tpr - c) / (d - c)
            for a, b, c, d in zip(fpr[:-1], fpr[1:], tpr[:-1], tpr[1:], strict=True)
            if c <= min_tpr < d
        ]
        knots = np.unique(np.clip([*fpr, *crossing], min_fpr, max_fpr))
        middle = (knots[1:] + knots[:-1]) / 2
        height = np.maximum(np.interp(middle, fpr, tpr) - min_tpr, 0)
        return (np.diff(knots) * height).sum() / ((max_fpr - min_fpr) * (1 - min_tpr))

    generator = torch.Generator().manual_seed(2)
    labels = random_labels(90, 9, generator, missing=0.2)
    scores = random_scores(kind, 90, 9, generator) + labels.nan_to_num(0).round() * (kind != "constant")
    values = two_way_pauc(scores, labels, max_fpr=max_fpr, min_tpr=min_tpr, min_fpr=min_fpr)
    torch.testing.assert_close(values, by_task(clipped_area, scores, labels), **TOLERANCE)


def test_two_way_pauc_on_whole_ties_is_the_auc_of_the_hard_entries():
    # 10 positives and 10 negatives; the limits fall between ties, so half of each class is hard.
    positive = torch.tensor([9.0, 9, 8, 8, 7, 5, 5, 3, 2, 1])
    negative = torch.tensor([8.0, 6, 5, 5, 4, 3, 2, 2, 1, 0])
    scores, labels = torch.cat([positive, negative]), torch.cat([torch.ones(10), torch.zeros(10)])
    hard = torch.cat([positive[5:], negative[:5]])
    value = two_way_pauc(scores, labels, max_fpr=0.5, min_tpr=0.5)
    assert value.item() == pytest.approx(roc_auc(hard, torch.tensor([1.0] * 5 + [0.0] * 5)).item(), abs=1e-12)
    assert 0 < value < roc_auc(scores, labels)


def test_two_way_pauc_of_perfect_random_and_reversed_rankings():
    labels = torch.tensor([1.0] * 20 + [0.0] * 20)
    limits = {"max_fpr": 0.3, "min_tpr": 0.6}
    assert two_way_pauc(labels, labels, **limits).item() == pytest.approx(1, abs=1e-12)
    assert two_way_pauc(-labels, labels, **limits).item() == pytest.approx(0, abs=1e-12)
    constant = torch.zeros_like(labels)
    assert two_way_pauc(constant, labels, **limits).item() == pytest.approx(0, abs=1e-12)
    random = two_way_pauc(constant, labels, max_fpr=0.8, min_tpr=0.6)
    assert random.item() == pytest.approx(0.2**2 / 2 / (0.8 * 0.4), abs=1e-12)


def test_two_way_pauc_above_a_true_positive_rate_is_the_isic_2024_score():
    def isic(y, s):  # the challenge's code: swap the classes, then undo McClish's standardization
        standardized, limit = sklearn.metrics.roc_auc_score(1 - y, -s, max_fpr=0.2), 0.2
        return limit**2 / 2 + (2 * standardized - 1) * (limit - limit**2 / 2)

    generator = torch.Generator().manual_seed(4)
    labels = random_labels(200, 5, generator)
    scores = random_scores("mixed", 200, 5, generator) + 2 * labels
    expected = by_task(isic, scores, labels)
    assert (expected > 0.05).all()
    torch.testing.assert_close(0.2 * two_way_pauc(scores, labels, min_tpr=0.8), expected, **TOLERANCE)
