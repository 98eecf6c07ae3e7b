"""Operating points: the promise holds, on new rows, with few negatives, gaps and ties."""

import pytest
import scipy.stats
import torch

from mmb.metrics import operating_points


def draw(rows, tasks, seed, ties=False):
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(rows, tasks, generator=generator) < 0.2).float()
    scores = torch.randn(rows, tasks, generator=generator) + labels
    labels[torch.rand(rows, tasks, generator=generator) < 0.3] = float("nan")
    return (scores * 3).round() if ties else scores, labels


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_false_positive_rate_is_kept_as_often_as_promised(confidence, ties):
    """2000 tasks are 2000 draws of 80 rows; the true rate of a threshold is known."""
    scores, labels = draw(80, 2000, 0, ties)
    found = operating_points(scores, labels, max_fpr=0.1, confidence=confidence)
    # a rounded score is above t if the score itself is above t + 1/2
    edge = (found.threshold + 0.5) / 3 if ties else found.threshold
    rate = torch.from_numpy(scipy.stats.norm.sf(edge.numpy()))
    placed = ~found.threshold.isnan()
    assert placed.float().mean() > 0.9
    kept = float((rate[placed] <= 0.1).double().mean())
    assert kept >= confidence - 3 * (confidence * (1 - confidence) / 2000) ** 0.5
    if not ties:  # and no more cautious than the number of negatives needs
        assert kept <= 1 - (1 - confidence) / 4


@pytest.mark.parametrize("ties", [False, True])
def test_the_true_positive_rate_is_kept_as_often_as_promised(ties):
    scores, labels = draw(300, 2000, 1, ties)
    found = operating_points(scores, labels, min_tpr=0.8, confidence=0.9)
    edge = ((found.threshold.ceil() - 0.5) / 3 if ties else found.threshold) - 1  # positives have mean 1
    rate = torch.from_numpy(scipy.stats.norm.sf(edge.numpy()))
    placed = ~found.threshold.isnan()
    kept = float((rate[placed] >= 0.8).double().mean())
    assert kept >= 0.9 - 3 * (0.09 / 2000) ** 0.5
    assert ties or kept < 0.98


def test_the_threshold_is_the_order_statistic_and_rates_are_counted():
    scores = torch.arange(100.0)
    labels = torch.zeros(100)
    labels[95:] = 1
    found = operating_points(scores, labels, max_fpr=0.1, confidence=0.95)
    k = max(k for k in range(95) if scipy.stats.binom.cdf(k, 95, 0.1) <= 0.05)
    assert found.threshold == 94 - k
    assert found.fpr == pytest.approx(k / 95)
    exact = scipy.stats.binomtest(k, 95).proportion_ci(0.95)
    assert (float(found.fpr_low), float(found.fpr_high)) == pytest.approx((exact.low, exact.high))
    assert (found.tpr, found.tpr_high) == (1, 1)
    assert float(found.tpr_low) == pytest.approx(0.025 ** (1 / 5))


def test_too_few_rows_are_said():
    scores, labels = torch.randn(20, 2, generator=torch.Generator().manual_seed(0)), torch.zeros(20, 2)
    labels[0, 1] = 1
    found = operating_points(scores, labels, max_fpr=0.1)
    assert found.fewest_rows == 29
    assert found.threshold.isnan().all()
    assert found.fpr_high.isnan().all()
    assert not (scores > found.threshold).any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64, torch.int64])
def test_a_row_at_the_lowest_allowed_score_is_called(dtype):
    scores = torch.arange(50).to(dtype)
    found = operating_points(scores, torch.ones(50), min_tpr=0.5, confidence=0.9)
    called = int((scores > found.threshold).sum())
    assert called / 50 == pytest.approx(float(found.tpr))
    assert found.fpr.isnan()
    k = max(k for k in range(50) if scipy.stats.binom.cdf(k, 50, 0.5) <= 0.1)
    assert called == 50 - k


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "max_fpr or min_tpr"),
        ({"max_fpr": 0.1, "min_tpr": 0.5}, "max_fpr or min_tpr"),
        ({"max_fpr": 1.0}, r"max_fpr.*\(0, 1\)"),
        ({"min_tpr": 0.0}, r"min_tpr.*\(0, 1\)"),
        ({"max_fpr": 0.1, "confidence": 95}, "confidence.*95"),
        ({"max_fpr": 0.1, "confidence": None}, "confidence.*None"),
        ({"min_tpr": "0.5"}, "min_tpr.*'0.5'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        operating_points(torch.rand(5), torch.ones(5), **arguments)
