"""Rates at an operating point against scikit-learn's ROC curve and torchmetrics."""

import pytest
import sklearn.metrics
import torch

from mmb.metrics import fpr_at_tpr, tpr_at_fpr
from random_rankings import by_task, random_labels, random_scores, ranking_cases

EXACT = {"rtol": 0, "atol": 1e-12, "equal_nan": True}


@pytest.mark.parametrize("limit", [0.001, 0.1, 0.25, 0.3, 0.5, 1.0])
def test_equal_to_the_best_threshold_of_sklearns_curve(limit):
    def best_tpr(y, s):
        fpr, tpr, _ = sklearn.metrics.roc_curve(y, s, drop_intermediate=False)
        return tpr[fpr <= limit].max()

    def best_fpr(y, s):
        fpr, tpr, _ = sklearn.metrics.roc_curve(y, s, drop_intermediate=False)
        return fpr[tpr >= limit].min()

    for scores, labels in ranking_cases():
        torch.testing.assert_close(
            tpr_at_fpr(scores, labels, limit), by_task(best_tpr, scores, labels), **EXACT
        )
        torch.testing.assert_close(
            fpr_at_tpr(scores, labels, limit), by_task(best_fpr, scores, labels), **EXACT
        )


@pytest.fixture
def double():
    """Torchmetrics computes in the default precision."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("kind", ["random", "tied"])
def test_equal_to_torchmetrics(kind):
    torchmetrics = pytest.importorskip("torchmetrics")
    generator = torch.Generator().manual_seed(0)
    labels = random_labels(200, 5, generator)
    scores = (random_scores(kind, 200, 5, generator) + labels).sigmoid()
    sensitivity = torchmetrics.functional.classification.binary_sensitivity_at_specificity
    expected = [
        sensitivity(s, y.long(), min_specificity=0.8)[0] for s, y in zip(scores.T, labels.T, strict=True)
    ]
    torch.testing.assert_close(
        tpr_at_fpr(scores, labels, 0.2), torch.stack(expected).double(), rtol=0, atol=1e-9
    )


def test_tied_rows_are_called_together():
    # A threshold at 1 calls two negatives of four; only one above it is within a rate of 0.25.
    scores, labels = torch.tensor([3.0, 2, 1, 1, 1, 1, 0]), torch.tensor([1, 0, 1, 1, 0, 0, 0])
    assert tpr_at_fpr(scores, labels, 0.25) == pytest.approx(1 / 3)
    assert tpr_at_fpr(scores, labels, 0.74) == pytest.approx(1 / 3)
    assert tpr_at_fpr(scores, labels, 0.75) == 1
    assert fpr_at_tpr(scores, labels, 1 / 3) == 0
    assert fpr_at_tpr(scores, labels, 0.34) == 0.75


@pytest.mark.parametrize("limit", [0, -0.1, 1.1, float("nan"), "0.1", None])
def test_bad_limits(limit):
    scores, labels = torch.tensor([0.1, 0.2]), torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"max_fpr.*\(0, 1\]"):
        tpr_at_fpr(scores, labels, limit)
    with pytest.raises(ValueError, match=r"min_tpr.*\(0, 1\]"):
        fpr_at_tpr(scores, labels, limit)
