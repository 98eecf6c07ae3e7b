"""Binomial tails and intervals against scipy."""

import pytest
import scipy.stats
import torch

from mmb.metrics._binomial import binomial_cdf, clopper_pearson, fewest_rows, most_allowed

CASES = [(0, 1), (1, 1), (0, 29), (3, 30), (30, 30), (17, 500), (250, 500), (44_000, 100_000), (9, 1_000_000)]
COUNT, NUMBER = torch.tensor(CASES).T


@pytest.mark.parametrize("rate", [1e-6, 0.01, 0.3, 0.5, 0.999])
def test_tails_are_those_of_scipy(rate):
    expected = torch.from_numpy(scipy.stats.binom.cdf(COUNT.numpy(), NUMBER.numpy(), rate))
    found = binomial_cdf(COUNT, NUMBER, torch.tensor(rate, dtype=torch.float64))
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-13)


def test_outside_of_the_range():
    found = binomial_cdf(torch.tensor([-1, 5, 7]), torch.tensor([5, 5, 5]), torch.tensor(0.5))
    assert found.tolist() == [0, 1, 1]


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_intervals_are_those_of_scipy(confidence):
    low, high = clopper_pearson(COUNT, NUMBER, confidence)
    for index, (count, number) in enumerate(CASES):
        expected = scipy.stats.binomtest(count, number).proportion_ci(confidence, method="exact")
        assert float(low[index]) == pytest.approx(expected.low, rel=1e-6, abs=1e-12)
        assert float(high[index]) == pytest.approx(expected.high, rel=1e-6, abs=1e-12)


def test_without_rows_there_is_no_interval():
    low, high = clopper_pearson(torch.tensor([0]), torch.tensor([0]), 0.95)
    assert low.isnan().all()
    assert high.isnan().all()


@pytest.mark.parametrize(("rate", "error"), [(0.1, 0.05), (0.01, 0.1), (0.5, 0.01), (0.9, 0.3)])
def test_the_most_events_that_are_rare_enough(rate, error):
    numbers = torch.tensor([0, 1, 28, 29, 30, 299, 5000])
    for number, found in zip(numbers.tolist(), most_allowed(numbers, rate, error).tolist(), strict=True):
        assert found == -1 or scipy.stats.binom.cdf(found, number, rate) <= error
        assert scipy.stats.binom.cdf(found + 1, number, rate) > error


def test_the_fewest_rows():
    assert fewest_rows(0.1, 0.05) == 29  # 0.9 ** 29 = 0.047
    assert fewest_rows(0.01, 0.05) == 299
    for rate, error in ((0.1, 0.05), (0.01, 0.05), (0.3, 0.5)):
        number = fewest_rows(rate, error)
        assert most_allowed(torch.tensor([number - 1, number]), rate, error).tolist() == [-1, 0]
