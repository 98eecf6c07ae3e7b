import pytest
import torch

from mmb.report.intervals import FEWEST, Sample, UncertainValue, benjamini_hochberg, holm, row_freedom


def test_adjusted_p_values_of_a_textbook_example():
    p = torch.tensor([0.01, 0.04, torch.nan, 0.03, 0.005], dtype=torch.float64)
    for adjust, expected in (
        (holm, [0.03, 0.06, 0.06, 0.02]),
        (benjamini_hochberg, [0.02, 0.04, 0.04, 0.02]),
    ):
        found = adjust(p)
        assert found[2].isnan()
        assert found[[0, 1, 3, 4]].tolist() == pytest.approx(expected)
    assert holm(p[2:3]).isnan().all()


def test_without_noise_of_rows_it_is_welchs_test():
    """The numbers are those of `scipy.stats.ttest_ind(one, other, equal_var=False)`."""
    one = torch.tensor([0.91, 0.93, 0.90, 0.94], dtype=torch.float64)
    other = torch.tensor([0.88, 0.92, 0.85], dtype=torch.float64)
    nothing, freedom = torch.zeros(50, dtype=torch.float64), torch.tensor(20.0, dtype=torch.float64)
    found = Sample(one, nothing, freedom).minus(Sample(other, nothing, freedom))
    assert found.p_value().item() == pytest.approx(0.203610902859)
    assert found.freedom.item() == pytest.approx(2.81585495912)
    assert [end.item() for end in found.interval()] == pytest.approx([-0.036789982310, 0.110123315643])


def test_one_run_each_is_a_paired_test_of_rows():
    influence = torch.randn(100, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) / 100
    freedom = torch.tensor([30.0, 40.0], dtype=torch.float64)
    one = Sample(torch.tensor([[0.9, 0.8]], dtype=torch.float64), influence, freedom)
    other = Sample(torch.tensor([[0.8, 0.8]], dtype=torch.float64), 0.5 * influence, freedom)
    found = one.minus(other)
    torch.testing.assert_close(found.variance, (0.5 * influence).square().sum(0))
    torch.testing.assert_close(found.freedom, freedom)
    assert found.p_value()[1] == 1


def test_runs_put_together_keep_their_weight():
    freedom = torch.tensor([9.0], dtype=torch.float64)
    one = Sample(torch.ones(3, 1, dtype=torch.float64), torch.full((5, 1), 1.0, dtype=torch.float64), freedom)
    other = Sample(
        torch.zeros(1, 1, dtype=torch.float64), torch.full((5, 1), 5.0, dtype=torch.float64), freedom
    )
    both = Sample.together([one, other])
    assert both.values.tolist() == [[1], [1], [1], [0]]
    assert both.influence.tolist() == [[2.0]] * 5


def test_few_rows_and_perfect_rankings_get_no_interval():
    labels = torch.zeros(100, 2, dtype=torch.int8)
    labels[:FEWEST, 0] = 1
    labels[: FEWEST - 1, 1] = 1
    freedom = row_freedom((labels == 1).sum(0), (labels == 0).sum(0))
    assert freedom[0] == FEWEST - 1
    assert freedom[1].isnan()
    perfect = torch.tensor([1 - 1e-16, 0.9], dtype=torch.float64)
    estimate = UncertainValue(perfect, torch.tensor([1e-34, 1e-4], dtype=torch.float64), freedom)
    low, high = estimate.share_interval()
    assert low.isnan().all()
    assert high.isnan().all()
    assert estimate.p_value()[1].isnan()


def test_an_interval_of_an_area_stays_inside_it():
    wide = UncertainValue(*(torch.tensor([x], dtype=torch.float64) for x in (0.99, 0.02**2, 12)))
    low, high = wide.share_interval()
    assert 0.5 < low.item() < 0.99 < high.item() < 1
