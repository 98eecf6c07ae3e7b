"""Probabilities and operating points, by closed forms and next to scikit-learn."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from mmb.auc import PartialAUC
from mmb.estimators.calibration import Calibration, fpr_thresholds, spread_as_averaged
from mmb.log_odds import fit_log_odds


def draw(rows=2000, tasks=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, tasks, generator=generator, dtype=torch.float64)
    slope, offset = torch.tensor([0.5, 2.0, 1.0]), torch.tensor([-3.0, 0.0, -1.0])
    chance = (slope * scores + offset).sigmoid()
    labels = (torch.rand(rows, tasks, generator=generator) < chance).to(torch.int8)
    labels[torch.rand(rows, tasks, generator=generator) < 0.2] = -1
    return scores, labels, slope, offset


def test_log_odds_are_those_of_logistic_regression():
    scores, labels, slope, offset = draw()
    (a,), b = fit_log_odds(scores.unsqueeze(1), labels, torch.ones(len(scores)))
    torch.testing.assert_close(a, slope.double(), rtol=0.2, atol=0.1)
    torch.testing.assert_close(b, offset.double(), rtol=0.2, atol=0.2)
    for k in range(3):
        there = labels[:, k] >= 0
        reference = LogisticRegression(C=np.inf).fit(scores[there, k : k + 1], labels[there, k])
        assert float(a[k]) == pytest.approx(reference.coef_[0, 0], abs=0.03)
        assert float(b[k]) == pytest.approx(reference.intercept_[0], abs=0.03)


def test_log_odds_weigh_rows():
    scores, labels, _, _ = draw(300)
    times = torch.randint(1, 4, (300,), generator=torch.Generator().manual_seed(1))
    weighted = fit_log_odds(scores.unsqueeze(1), labels, times.double())
    rows = torch.arange(300).repeat_interleave(times)
    repeated = fit_log_odds(scores[rows].unsqueeze(1), labels[rows], torch.ones(len(rows)))
    for one, other in zip(weighted, repeated, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-2)


def test_log_odds_exist_where_classes_are_separate_or_absent():
    scores = torch.tensor([[-2.0, 1.0, 3.0], [-1.0, 2.0, 3.0], [1.0, 3.0, 3.0], [2.0, 4.0, 3.0]])
    labels = torch.tensor([[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]], dtype=torch.int8)
    (a,), b = fit_log_odds(scores.unsqueeze(1), labels, torch.ones(4))
    assert bool((a > 0).all())
    chance = (a * scores + b).sigmoid()
    assert bool((chance[:2, 0] < 0.5).all())
    assert bool((chance[2:, 0] > 0.5).all())
    assert float(chance[:, 1].max()) < 0.5  # four negatives and no positive
    torch.testing.assert_close(chance[:, 2], torch.full((4,), 0.5, dtype=torch.float64), atol=1e-3, rtol=0)


def test_models_are_weighed_by_their_information():
    """Given noise and two halves of the information, the halves get all the weight, whatever their scale."""
    scores, labels, _, _ = draw(4000)
    generator = torch.Generator().manual_seed(1)
    noise, split = torch.randn(2, *scores.shape, generator=generator, dtype=torch.float64)
    kinds = torch.stack([0.1 * noise, scores + split, 100 * (scores - split)], 1)
    slope, offset = fit_log_odds(kinds, labels, torch.ones(4000))
    share = slope * kinds.std(0)
    share = share / share.sum(0)
    assert bool((share[0] < 0.2).all())
    torch.testing.assert_close(share[1], share[2], atol=0.2, rtol=0)
    (alone,), base = fit_log_odds(scores.unsqueeze(1), labels, torch.ones(4000))
    blended = (slope * kinds).sum(1) + offset
    assert float((blended - (alone * scores + base)).abs().mean()) < 0.3
    # of no rows, what was before, or equal shares
    nothing = torch.zeros(4000)
    kept, _ = fit_log_odds(kinds, labels, nothing, slope)
    torch.testing.assert_close(kept / kept.sum(0), slope / slope.sum(0))
    equal, _ = fit_log_odds(kinds, labels, nothing)
    torch.testing.assert_close(equal * kinds.std(0, correction=0), torch.full((3, 3), 1 / 3).double())


@pytest.mark.parametrize("max_fpr", [0.05, 0.1, 0.29, 1.0])
def test_thresholds_are_those_of_the_objective(max_fpr):
    scores, labels, _, _ = draw(500)
    found = fpr_thresholds(scores, labels, torch.ones(500), max_fpr)
    torch.testing.assert_close(found, PartialAUC(labels, max_fpr=max_fpr).thresholds(scores, labels))


def test_thresholds_weigh_rows():
    scores, labels, _, _ = draw(300)
    times = torch.randint(1, 4, (300,), generator=torch.Generator().manual_seed(1))
    rows = torch.arange(300).repeat_interleave(times)
    weighted = fpr_thresholds(scores, labels, times.float(), 0.1)
    torch.testing.assert_close(
        weighted, fpr_thresholds(scores[rows], labels[rows], torch.ones(len(rows)), 0.1)
    )


def test_calibration_stays_for_tasks_without_labels():
    scores, labels, _, _ = draw(300)
    calibration, mass = Calibration(3), torch.ones(2, 3, dtype=torch.float64)
    calibration.fit(scores, scores, labels, torch.ones(300), 0.1, mass)
    slope, cut = calibration.slope.clone(), calibration.cut.clone()
    labels[:, 0] = torch.where(labels[:, 0] == 1, -1, labels[:, 0])  # no positives
    labels[:, 1] = -1
    calibration.fit(scores[:50], scores[:50], labels[:50], torch.ones(50), 0.1, mass)
    assert torch.equal(calibration.slope[:2], slope[:2])
    assert calibration.cut[0] != cut[0]
    assert calibration.cut[1] == cut[1]
    assert calibration.slope[2] != slope[2]


def test_calibration_of_a_task_starts_with_its_second_class():
    """Constant while there is one class; what came before does not count after."""
    scores, labels, _, _ = draw(100, 3)
    calibration, zero, one = Calibration(3), torch.zeros_like(labels), torch.ones_like(labels)
    mass = torch.tensor([[100.0] * 3, [0.0] * 3], dtype=torch.float64)
    calibration.fit(scores, scores, zero, torch.ones(100), 0.1, mass)
    assert calibration(scores).unique().tolist() == pytest.approx([math.log(0.5 / 100.5)])
    calibration.fit(scores, scores, one, torch.ones(100), 0.1, mass + 1)
    assert torch.equal(calibration(scores), scores)


def test_scores_get_the_spread_of_an_average():
    """Networks that add noise to a common score: thresholds by one are right for the mean of four."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(20_000, 2, generator=generator) < 0.2).to(torch.int8)
    common = torch.randn(20_000, 2, generator=generator, dtype=torch.float64) + 2 * labels
    noise = torch.randn(4, 20_000, 2, generator=generator, dtype=torch.float64)
    noise[..., 1] *= 0.2
    networks = common + noise
    fold = torch.zeros(20_000, dtype=torch.int64)
    found = spread_as_averaged(networks, fold, labels, torch.ones(20_000))
    for value in (0, 1):
        there = labels == value
        for task in range(2):
            one, mean = found[there[:, task], task], networks.mean(0)[there[:, task], task]
            assert float(one.std()) == pytest.approx(float(mean.std()), rel=0.03)
            assert float(one.mean()) == pytest.approx(float(mean.mean()), abs=0.03)
    cut = fpr_thresholds(found, labels, torch.ones(20_000), 0.1)
    rate = ((networks.mean(0) > cut) & (labels == 0)).sum(0) / (labels == 0).sum(0)
    torch.testing.assert_close(rate, torch.full((2,), 0.1), atol=0.01, rtol=0)
    alone = fpr_thresholds(networks[0], labels, torch.ones(20_000), 0.1)
    assert float((networks.mean(0)[:, 0] > alone[0])[labels[:, 0] == 0].double().mean()) < 0.08


def test_scores_for_probabilities_stay_if_all_is_chance():
    generator = torch.Generator().manual_seed(0)
    labels = (torch.arange(100) % 2).to(torch.int8).unsqueeze(1)
    networks = torch.randn(4, 100, 1, generator=generator, dtype=torch.float64)
    fold, own = torch.arange(100) % 4, torch.randn(100, 1, generator=generator, dtype=torch.float64) / 2
    found = spread_as_averaged(networks, fold, labels, torch.ones(100), own)
    torch.testing.assert_close(found, own)
    steady = own + 0.1 * networks  # nearly all of it known
    both = [spread_as_averaged(steady, fold, labels, torch.ones(100), h) for h in (None, own)]
    assert 0.9 < float(both[1].std() / own.std()) < 1
    assert float(both[0].std()) == pytest.approx(float(both[1].std()), rel=0.05)


def test_memorized_rows_hardly_move_scores():
    """Networks put rows they were trained on elsewhere, all the same way: thresholds stay about right."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.zeros(20_000, 1, dtype=torch.int8)
    fold = torch.arange(20_000) % 4
    common, heart = torch.randn(2, 20_000, 1, generator=generator, dtype=torch.float64)
    noise = 0.3 * torch.randn(4, 20_000, 1, generator=generator, dtype=torch.float64)
    knew = (fold != torch.arange(4).unsqueeze(1)).unsqueeze(2)
    networks = common + noise + knew * heart
    found = spread_as_averaged(networks, fold, labels, torch.ones(20_000))
    cut = fpr_thresholds(found, labels, torch.ones(20_000), 0.1)
    assert float((common + noise.mean(0) > cut).double().mean()) == pytest.approx(0.1, abs=0.03)
