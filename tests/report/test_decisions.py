import pytest
import torch
from scipy.stats import binomtest

from mmb.metrics import operating_points
from mmb.report.decisions import decided, reliability, reliability_points
from mmb.report.selected_scores import SelectedScores


@pytest.fixture
def scores():
    generator = torch.Generator().manual_seed(0)
    labels = {
        part: (torch.rand(300, 2, generator=generator) < 0.3).to(torch.int8) for part in ("valid", "test")
    }
    logits = {part: torch.randn(300, 2, generator=generator) + found for part, found in labels.items()}
    labels["valid"][:, 1] = -1
    labels["valid"][:12, 1] = torch.tensor([0] * 8 + [1] * 4)  # too few for a promise
    return SelectedScores(5, ["a", "b"], {}, logits, labels, torch.ones(2, 2), {})


def test_operating_points_have_exact_intervals(scores):
    found = decided(scores, 0.1)
    promised = operating_points(scores.logits["valid"], scores.labels["valid"], max_fpr=0.1)
    assert found["promised_threshold"] == [pytest.approx(float(promised.threshold[0]), abs=1e-4), None]
    assert found["promised_fpr"][1] is None
    assert found["promised_threshold"][0] > found["threshold"][0]
    for kind in ("", "promised_"):
        for name, sign in (("fpr", 0), ("tpr", 1)):
            side = scores.labels["test"][:, 0] == sign
            called = int((scores.logits["test"][side, 0] > found[f"{kind}threshold"][0]).sum())
            exact = binomtest(called, int(side.sum())).proportion_ci(0.95, "exact")
            shown = [found[f"{kind}{name}{end}"][0] for end in ("", "_low", "_high")]
            assert shown == pytest.approx([called / int(side.sum()), *exact], abs=1e-5)


def test_a_limit_of_one_promises_nothing(scores):
    assert decided(scores, 1.0)["promised_threshold"] == [None, None]


def test_probabilities_are_calibrated_on_validation_rows(scores):
    scores.logits["valid"] *= 5  # of an objective that does not care about probabilities
    scores.logits["test"] *= 5
    points = reliability(scores)[0]
    assert sum(rows for _, _, rows in points) == 300
    assert all(abs(predicted - share) < 0.2 for predicted, share, _ in points)
    raw = reliability_points(scores.logits["test"].double().sigmoid(), scores.labels["test"])[0]
    assert any(abs(predicted - share) > 0.3 for predicted, share, _ in raw)


def test_reliability_averages_over_bins_of_equal_size():
    logits = torch.tensor([[-2.0, 0.0], [-1.0, 0.0], [0.0, 0.0], [2.0, 0.0]]).repeat(4, 1)
    labels = torch.tensor([[0, -1], [0, -1], [1, -1], [1, 1]]).repeat(4, 1).to(torch.int8)
    first, second = reliability_points(logits.double().sigmoid(), labels)
    assert [rows for _, _, rows in first] == [2] * 8
    chance = [float(torch.tensor(value).sigmoid()) for value in (-2.0, -2.0, -1.0, -1.0, 0.0, 0.0, 2.0, 2.0)]
    assert [predicted for predicted, _, _ in first] == pytest.approx(chance, abs=1e-3)
    assert [share for _, share, _ in first] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert second == [[0.5, 1.0, 1.0]] * 4
