import pytest
import torch

from mmb import metrics
from mmb.report.influence import row_influence
from mmb.report.intervals import UncertainValue


def ranking(rows, tasks, seed=0, missing=0.0, shift=1.0, rate=0.3):
    """Scores and labels; a second set of scores that is correlated with the first."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(rows, tasks, generator=generator) < rate).to(torch.int8)
    common = torch.randn(rows, 1, generator=generator) + shift * labels
    first, second = (common + 0.7 * torch.randn(rows, tasks, generator=generator) for _ in range(2))
    labels[torch.rand(rows, tasks, generator=generator) < missing] = -1
    return first, second, labels


def delong(scores, others, labels):
    """Covariance of the AUCs of two sets of scores of one task, pair by pair as DeLong et al. state it."""

    def components(values):
        positive, negative = values[labels == 1].double(), values[labels == 0].double()
        kernel = (positive[:, None] > negative).double() + 0.5 * (positive[:, None] == negative).double()
        return kernel.mean(1), kernel.mean(0)

    total = 0.0
    for one, other in zip(components(scores), components(others), strict=True):
        total += torch.cov(torch.stack([one, other]))[0, 1] / len(one)
    return total


def test_delong_with_ties_and_gaps():
    first, second, labels = ranking(90, 3, missing=0.3)
    first = (first * 3).round() / 3  # ties
    one, other = (row_influence(scores, labels, [1.0])[0] for scores in (first, second))
    for task in range(3):
        column = labels[:, task]
        for a, b, x, y in ((first, first, one, one), (first, second, one, other)):
            expected = delong(a[:, task], b[:, task], column)
            torch.testing.assert_close((x[:, task] * y[:, task]).sum(), expected)


def test_delong_known_value():
    # Positives at 3, 1 and negatives at 2, 0, 0: V10 = (1, 2/3), V01 = (1/2, 1, 1).
    scores = torch.tensor([[3.0], [1.0], [2.0], [0.0], [0.0]])
    labels = torch.tensor([[1], [1], [0], [0], [0]], dtype=torch.int8)
    variance = row_influence(scores, labels, [1.0])[0].square().sum()
    assert variance.item() == pytest.approx((1 / 18) / 2 + (1 / 12) / 3)


def weighted_area(scores, labels, weights, limit):
    """Area under the ROC curve of weighted rows over FPR <= limit; no ties."""
    positive, negative = labels == 1, labels == 0
    above = (scores[negative][None, :] > scores[positive][:, None]).double() @ weights[negative]
    inside = (limit - above / weights[negative].sum()).clamp(min=0)
    return (weights[positive] * inside).sum() / weights[positive].sum()


@pytest.mark.parametrize("limit", [1.0, 0.313, 0.107])
def test_influence_is_the_derivative_by_the_weight_of_a_row(limit):
    scores, _, labels = ranking(120, 1, missing=0.1)
    scores, column = scores[:, 0], labels[:, 0]
    weights = torch.ones(120, dtype=torch.float64, requires_grad=True)
    area = weighted_area(scores, column, weights, limit)
    standardized = (1 + (area - limit**2 / 2) / (limit - limit**2 / 2)) / 2
    assert standardized.item() == pytest.approx(metrics.roc_auc(scores, column, limit).item())
    (slope,) = torch.autograd.grad(standardized, weights)
    for sign in (1, 0):
        count = (column == sign).sum()
        slope[column == sign] *= (count / (count - 1)).sqrt()  # the unbiased variance of a class
    torch.testing.assert_close(row_influence(scores[:, None], labels, [limit])[0][:, 0], slope)


@pytest.mark.parametrize(("limit", "metric"), [(1.0, "roc_auc"), (0.1, "partial_auc")])
def test_intervals_cover_what_they_should(limit, metric):
    # Each task is one experiment: 40 positives, 200 negatives, two correlated models of equal quality.
    tasks = 2000
    generator = torch.Generator().manual_seed(1)
    labels = torch.cat([torch.ones(40, tasks), torch.zeros(200, tasks)]).to(torch.int8)
    common = torch.randn(240, tasks, generator=generator) + 1.5 * labels
    models = [common + torch.randn(240, tasks, generator=generator) for _ in range(2)]
    values = [metrics.evaluate(model, labels, 0.1)[metric] for model in models]
    parts = [row_influence(model, labels, [limit])[0] for model in models]
    freedom = torch.full((tasks,), 39.0, dtype=torch.float64)

    difference = UncertainValue(values[0] - values[1], (parts[0] - parts[1]).square().sum(0), freedom)
    assert difference.variance.sqrt().mean() / difference.value.std() == pytest.approx(1, abs=0.05)
    assert (difference.p_value() < 0.05).double().mean() == pytest.approx(0.05, abs=0.015)
    low, high = difference.interval()
    assert ((low < 0) & (high > 0)).double().mean() == pytest.approx(0.95, abs=0.015)

    truth = torch.cat(values).mean()
    low, high = UncertainValue(values[0], parts[0].square().sum(0), freedom).share_interval()
    assert ((low < truth) & (truth < high)).double().mean() == pytest.approx(0.95, abs=0.025)


@pytest.mark.parametrize(("limit", "metric"), [(1.0, "roc_auc"), (0.2, "partial_auc")])
def test_mean_over_tasks_of_shared_rows_agrees_with_the_bootstrap(limit, metric):
    first, second, labels = ranking(400, 6, missing=0.1)
    exact = (row_influence(first, labels, [limit])[0] - row_influence(second, labels, [limit])[0]).mean(1)
    generator = torch.Generator().manual_seed(2)
    rows = torch.randint(400, (400, 400), generator=generator)  # a column for each draw
    drawn = [values[rows].flatten(1) for values in (first, second, labels)]  # [400, draws * tasks]
    a, b = (metrics.evaluate(scores, drawn[2], 0.2)[metric] for scores in drawn[:2])
    draws = (a - b).reshape(400, 6).mean(1)
    assert exact.square().sum().sqrt() / draws.std() == pytest.approx(1, abs=0.12)


def test_tasks_without_a_class_have_no_influence_and_gaps_none():
    scores, _, labels = ranking(60, 3, missing=0.4)
    labels[:, 1] = labels[:, 1].clamp(max=0)
    found = row_influence(scores, labels, [0.5])[0]
    assert found[:, 1].isnan().any()
    assert (found[:, [0, 2]][labels[:, [0, 2]] == -1] == 0).all()
    assert found[:, [0, 2]].isfinite().all()
