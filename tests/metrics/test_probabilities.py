"""Metrics of probabilities against scikit-learn and torchmetrics."""

import math

import numpy as np
import pytest
import sklearn.metrics
import torch

from mmb.metrics import brier, calibration_error, log_loss
from random_rankings import by_task, random_labels, random_scores, ranking_cases

CLOSE = {"rtol": 0, "atol": 1e-9, "equal_nan": True}
METRICS = [brier, log_loss, calibration_error]


def binned_gap(y, s, bins):
    """The definition, with a loop over bins."""
    place = np.minimum(np.searchsorted(np.linspace(0, 1, bins + 1), s, side="right") - 1, bins - 1)
    return sum(
        abs(s[place == b].mean() - y[place == b].mean()) * (place == b).mean() for b in np.unique(place)
    )


def test_equal_to_sklearn():
    for logits, labels in ranking_cases():
        scores = logits.sigmoid()
        expected = by_task(sklearn.metrics.brier_score_loss, scores, labels)
        torch.testing.assert_close(brier(scores, labels), expected, **CLOSE)
        torch.testing.assert_close(brier(logits, labels, from_logits=True), expected, **CLOSE)
        expected = by_task(sklearn.metrics.log_loss, scores, labels)
        torch.testing.assert_close(log_loss(scores, labels), expected, **CLOSE)
        torch.testing.assert_close(log_loss(logits, labels, from_logits=True), expected, **CLOSE)


@pytest.mark.parametrize("bins", [1, 2, 10, 15])
def test_calibration_error_with_its_definition(bins):
    for logits, labels in ranking_cases():
        scores = logits.mul(3).sigmoid()
        scores[::7] = scores[::7].round()  # 0 and 1, and with an even number of bins on an edge
        scores[::5] = 0.5
        expected = by_task(lambda y, s: binned_gap(y, s, bins), scores, labels)
        torch.testing.assert_close(calibration_error(scores, labels, bins), expected, **CLOSE)


@pytest.mark.parametrize("bins", [3, 15])
def test_calibration_error_is_that_of_torchmetrics(bins):
    functional = pytest.importorskip("torchmetrics.functional.classification")

    def expected(y, s):
        return functional.binary_calibration_error(torch.from_numpy(s), torch.from_numpy(y).long(), bins)

    for logits, labels in ranking_cases():
        by_logits = calibration_error(logits, labels, bins, from_logits=True)
        torch.testing.assert_close(by_logits, by_task(expected, logits.sigmoid(), labels), **CLOSE)


def test_certain_and_wrong_probabilities_have_a_finite_log_loss():
    scores, labels = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64), torch.tensor([1.0, 0.0, 1.0])
    expected = sklearn.metrics.log_loss(labels.numpy(), scores.numpy())
    assert log_loss(scores, labels) == pytest.approx(expected, abs=1e-9)
    logits = torch.tensor([-100.0, 100.0, 100.0])
    assert log_loss(logits, labels, from_logits=True) == pytest.approx(200 / 3)


@pytest.mark.parametrize("metric", METRICS)
def test_scores_at_missing_labels_count_for_nothing(metric):
    generator = torch.Generator().manual_seed(0)
    labels = random_labels(50, 4, generator, missing=0.4)
    scores = random_scores("mixed", 50, 4, generator).sigmoid()
    expected = metric(scores, labels)
    for junk in (math.nan, math.inf, -7.0):
        assert metric(scores.masked_fill(labels.isnan(), junk), labels).equal(expected)
    assert metric(scores[:, 0], labels[:, 0]).shape == ()


@pytest.mark.parametrize("metric", METRICS)
def test_a_task_without_one_of_the_classes_is_nan(metric):
    scores = torch.tensor([[0.1, 0.1, 0.1, 0.1], [0.9, 0.9, 0.9, 0.9]])
    labels = torch.tensor([[0, 1, 0, -1], [1, 1, 0, -1]])
    assert metric(scores, labels).isnan().tolist() == [False, True, True, True]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("wrong", [-0.25, 1.5])
def test_numbers_that_are_no_probabilities(metric, wrong):
    with pytest.raises(ValueError, match=rf"probabilities.*\[0, 1\].*{wrong}.*from_logits"):
        metric(torch.tensor([0.1, wrong]), torch.tensor([0, 1]))


@pytest.mark.parametrize("bins", [0, 1.5, float("nan")])
def test_bad_bins(bins):
    with pytest.raises(ValueError, match=rf"bins.*at least 1.*{bins}"):
        calibration_error(torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), bins)
