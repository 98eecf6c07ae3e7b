"""Operating points: the asked rate after few batches, whatever the shape of the scores, and as they drift."""

from __future__ import annotations

import pytest
import torch

from mmb import auc

TASKS, ROWS = 12, 128
SHAPES = {
    "normal": lambda g, *s: torch.randn(*s, generator=g),
    "narrow": lambda g, *s: 0.05 * torch.randn(*s, generator=g),
    "exponential": lambda g, *s: -torch.rand(*s, generator=g).clamp(min=1e-9).log(),
    "logistic": lambda g, *s: 2 * torch.logit(torch.rand(*s, generator=g).clamp(1e-7, 1 - 1e-7)),
}


def rates_after(batches, rate, shape="normal", drift=0.0, start=-8.0):
    """Share of the negatives above each task's operating point, after batches with a tenth of positives."""
    generator = torch.Generator().manual_seed(batches)
    draw = SHAPES[shape]
    labels = (torch.rand(ROWS * 10, TASKS, generator=generator) < 0.1).to(torch.int8)
    objective = auc.PairwisePartialAUC(labels, max_fpr=rate)
    for step in range(batches):
        chosen = labels[torch.randint(len(labels), (ROWS,), generator=generator)]
        scores = start + drift * step + draw(generator, ROWS, TASKS) + 2 * chosen
        objective(scores, chosen)
    many = start + drift * batches + draw(generator, 400_000, 1)
    points = objective.tracked.operating_points
    assert bool(points.known().isfinite().all())
    return (many > points.value).float().mean(0)


@pytest.mark.parametrize("drift", [0.0, 0.02, -0.02])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("rate", "batches"), [(0.1, 20), (0.01, 50), (0.001, 500)])
def test_the_rate_is_within_a_factor_of_two(rate, batches, shape, drift):
    found = rates_after(batches, rate, shape, drift if shape != "narrow" else 0.0) / rate
    assert 0.6 < float(found.median()) < 1.6
    assert float(((found > 0.5) & (found < 2)).float().mean()) > 0.9


def test_it_finds_scores_anywhere_and_follows_a_jump():
    for start in (-300.0, 0.0, 40.0):
        found = rates_after(50, 0.01, start=start) / 0.01
        assert 0.6 < float(found.median()) < 1.6


def test_a_constant_score_and_single_rows_keep_everything_finite():
    labels = torch.tensor([[1], [0], [0], [0]])
    for rate in (0.01, 1.0):
        objective = auc.PairwisePartialAUC(labels, max_fpr=rate)
        points = objective.tracked.operating_points
        for step in range(30):
            rows = torch.tensor([step % 4])
            objective(torch.full((1, 1), -5.0), labels[rows])
        assert float(points.seen) == 22.0
        assert float(points.state[0, 1]) == pytest.approx(-5)
        assert -6 < float(points.value) < -4


def test_too_few_negatives_are_said():
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(400, 3, generator=generator) < 0.3).to(torch.int8)
    objective = auc.PartialAUC(labels, max_fpr=0.01)
    assert bool(objective.thresholds().isnan().all())
    scores = torch.randn(400, 3, generator=generator)
    objective(scores[:100], labels[:100])
    objective(scores[:, [1]].T, labels[:, [1]].T, torch.tensor([1]))
    assert objective.thresholds().isnan().tolist() == [True, False, True]  # 300 negatives it takes
    report = objective.threshold_report(scores, labels)
    assert report.tracked.isnan().tolist() == report.rate.isnan().tolist() == [True, False, True]
    assert bool(report.quantile.isfinite().all())
    objective(scores, labels)
    assert bool(objective.thresholds().isfinite().all())


def test_a_warm_start_is_followed_by_small_steps():
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(4000, 3, generator=generator) < 0.3).to(torch.int8)
    scores = torch.randn(4000, 3, generator=generator) - 5
    objective = auc.PartialAUC(labels, max_fpr=0.01)
    objective.warm_start(scores, labels)
    points = objective.tracked.operating_points
    before = points.value.clone()
    torch.testing.assert_close(before, objective.thresholds(scores, labels))
    torch.testing.assert_close(points.state[:, 1], torch.full((3,), -5.0), atol=0.1, rtol=0)
    objective(scores[:100], labels[:100])
    assert float((points.value - before).abs().max()) < 0.3
