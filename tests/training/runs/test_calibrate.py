"""Probabilities: against the truth, against scikit-learn, and which of two ways is chosen."""

import numpy as np
import pytest
import torch
from sklearn.isotonic import IsotonicRegression

from mmb.training.runs.calibrate import fit_calibration


def draw(rows, shape, seed=0, tasks=1):
    """Logits, labels drawn by known probabilities, and those."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, tasks, generator=generator)
    truth = shape(logits)
    labels = (torch.rand(rows, tasks, generator=generator) < truth).to(torch.int8)
    return logits, labels, truth


def curve(logits):
    return (0.4 * logits - 1).sigmoid()


def stairs(logits):
    return 0.05 + 0.5 * (logits > 0) + 0.35 * (logits > 3)


@pytest.mark.parametrize(("shape", "stepped"), [(curve, False), (stairs, True)])
def test_the_better_way_is_taken_and_is_near_the_truth(shape, stepped):
    logits, labels, _ = draw(3000, shape, tasks=3)
    found = fit_calibration(logits, labels)
    assert found.stepped.tolist() == [stepped] * 3
    new, _, truth = draw(3000, shape, seed=1, tasks=3)
    assert float((found(new) - truth).abs().mean()) < 0.03


def test_steps_are_isotonic_regression():
    logits, labels, _ = draw(2000, stairs)
    logits = (2 * logits).round() / 2  # with ties
    found = fit_calibration(logits, labels)
    assert found.stepped.all()
    other = IsotonicRegression(out_of_bounds="clip").fit(logits.squeeze(1).numpy(), labels.squeeze(1).numpy())
    grid = torch.linspace(-12, 12, 500)
    expected = np.clip(other.predict(grid.numpy()), 1 / 2002, 2001 / 2002)
    np.testing.assert_allclose(found(grid.unsqueeze(1)).squeeze(1).numpy(), expected, rtol=0, atol=1e-3)


def test_probabilities_keep_the_order_of_scores():
    logits, labels, _ = draw(500, stairs, tasks=4)
    labels[torch.rand(500, 4, generator=torch.Generator().manual_seed(2)) < 0.5] = -1
    labels[5:, 3] = -1  # too few for steps
    found = fit_calibration(logits, labels)(torch.linspace(-9, 9, 99).unsqueeze(1).expand(-1, 4))
    assert bool((found.diff(dim=0) >= 0).all())
    assert bool(((found > 0) & (found < 1)).all())


def test_a_task_with_one_class_is_constant():
    logits, labels, _ = draw(40, curve, tasks=2)
    labels[:, 1] = 0
    found = fit_calibration(logits, labels)
    assert found(logits)[:, 1].tolist() == pytest.approx([0.5 / 41] * 40)
    odds = found.log_odds(logits)[:, 1]  # rank rows all the same, where several runs are averaged
    assert torch.equal(odds.argsort(), logits[:, 1].argsort())
    assert odds.std(correction=0) == pytest.approx(1)


def test_no_rows_give_constant_probabilities():
    found = fit_calibration(torch.zeros(0, 2), torch.zeros(0, 2, dtype=torch.int8))
    logits = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    assert found(logits).tolist() == [[0.5, 0.5]] * 5
    torch.testing.assert_close(found.log_odds(logits), logits.double())
