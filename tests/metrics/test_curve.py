"""ROC curves against scikit-learn."""

import math

import numpy as np
import pytest
import sklearn.metrics
import torch

from mmb.metrics import roc_curve
from random_rankings import random_labels, random_scores


@pytest.mark.parametrize("kind", ["random", "tied", "few", "constant", "mixed"])
def test_roc_curve_is_that_of_sklearn_with_the_fewest_points(kind):
    generator = torch.Generator().manual_seed(3)
    scores, labels = random_scores(kind, 150, 8, generator), random_labels(150, 8, generator, missing=0.3)
    curve = roc_curve(scores, labels)
    longest = 0
    for task in range(8):
        there = ~labels[:, task].isnan()
        y, s = labels[there, task].numpy(), scores[there, task].numpy()
        fpr, tpr, thresholds = (points[task].numpy() for points in curve)
        alone = roc_curve(scores[:, task], labels[:, task])
        count = len(alone.fpr)
        longest = max(longest, count)
        for padded, points in zip((fpr, tpr, thresholds), alone, strict=True):
            np.testing.assert_array_equal(padded[:count], points.numpy())
            assert (padded[count:] == padded[count - 1]).all()

        # Each of our points is one of scikit-learn's, threshold included.
        full = sklearn.metrics.roc_curve(y, s, drop_intermediate=False)
        position = {threshold: k for k, threshold in enumerate(full[2])}
        kept = [position[threshold] for threshold in thresholds[:count]]
        assert kept == sorted(set(kept))
        np.testing.assert_allclose(fpr[:count], full[0][kept], rtol=0, atol=1e-12)
        np.testing.assert_allclose(tpr[:count], full[1][kept], rtol=0, atol=1e-12)
        # Nothing is lost (all its points lie on our lines) and nothing is idle (each of ours is a turn).
        along, ours = full[0] + full[1], fpr[:count] + tpr[:count]
        np.testing.assert_allclose(np.interp(along, ours, fpr[:count]), full[0], rtol=0, atol=1e-12)
        run, rise = np.diff(fpr[:count]), np.diff(tpr[:count])
        assert (np.abs(run[1:] * rise[:-1] - run[:-1] * rise[1:]) > 1e-12).all()
        assert (fpr[0], tpr[0], thresholds[0]) == (0, 0, math.inf)
        assert (fpr[-1], tpr[-1]) == (1, 1)
    assert curve.fpr.shape == curve.tpr.shape == curve.thresholds.shape == (8, longest)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int32])
def test_roc_curve_thresholds_are_scores(dtype):
    scores = torch.tensor([-3.5, -1.0, 0.0, 2.0, 7.5]).to(dtype)
    curve = roc_curve(scores, torch.tensor([0, 1, 0, 1, 0]))
    assert curve.thresholds.dtype == (dtype if dtype.is_floating_point else torch.float64)
    assert curve.thresholds[1:].tolist() == scores.tolist()[::-1]


def test_roc_curve_of_a_task_without_one_of_the_classes():
    curve = roc_curve(
        torch.tensor([[1.0, 1, 1, 1], [2.0, 2, 2, 2]]), torch.tensor([[0, 1, 0, -1], [1, 1, 0, -1]])
    )
    assert curve.fpr.isnan().all(1).tolist() == [False, True, False, True]
    assert curve.tpr.isnan().all(1).tolist() == [False, False, True, True]
    assert curve.fpr[0].tolist() == [0, 0, 1]
    assert curve.tpr[0].tolist() == [0, 1, 1]
