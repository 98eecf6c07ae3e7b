import base64

import pytest
import torch

from mmb import metrics
from mmb.report.page_values import POINTS, page_curves, thin_curves


def area(fpr, tpr, limit=1.0):
    """Area up to a limit by the trapezoid rule, cut exactly at the limit."""
    left, right = fpr[:-1].clamp(max=limit), fpr[1:].clamp(max=limit)
    slope = ((tpr[1:] - tpr[:-1]) / (fpr[1:] - fpr[:-1])).nan_to_num(0.0, 0.0, 0.0)
    cut = tpr[:-1] + slope * (right - fpr[:-1])
    heights = torch.where(fpr[1:] <= limit, tpr[1:], cut)
    return ((right - left) * (tpr[:-1] + heights) / 2).sum().item()


def scores_and_labels(rows, tasks, rate=0.3, decimals=None):
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(rows, tasks, generator=generator) < rate).to(torch.int8)
    scores = torch.randn(rows, tasks, generator=generator) + 1.2 * labels
    return scores if decimals is None else scores.round(decimals=decimals), labels


@pytest.mark.parametrize("decimals", [None, 1])
def test_thinned_curves_keep_their_areas(decimals):
    scores, labels = scores_and_labels(5000, 4, decimals=decimals)
    scores[:, 1] = torch.linspace(0, 1, 5000)  # by chance: half of its many corners on each side
    fpr, tpr = thin_curves(scores, labels, 0.1)
    assert fpr.shape[1] <= POINTS
    for task in range(4):
        whole = metrics.roc_curve(scores[:, task], labels[:, task])
        assert area(fpr[task], tpr[task]) == pytest.approx(area(whole.fpr, whole.tpr), abs=5e-4)
        assert area(fpr[task], tpr[task], 0.1) == pytest.approx(area(whole.fpr, whole.tpr, 0.1), abs=1e-4)
        assert (fpr[task].diff() >= 0).all()
        assert (tpr[task].diff() >= 0).all()
        assert fpr[task, 0] == tpr[task, 0] == 0
        assert fpr[task, -1] == tpr[task, -1] == 1


def test_curves_with_few_corners_are_exact_beside_long_ones():
    scores, labels = scores_and_labels(3000, 2)
    labels[:, 0] = 0
    labels[:5, 0] = 1
    fpr, tpr = thin_curves(scores, labels, 0.1)
    whole = metrics.roc_curve(scores[:, 0], labels[:, 0])
    count = len(whole.fpr)
    assert count < POINTS < (metrics.roc_curve(scores[:, 1], labels[:, 1]).fpr < 1).sum()
    assert torch.equal(fpr[0, :count], whole.fpr)
    assert torch.equal(tpr[0, :count], whole.tpr)


def test_encoded_curves_can_be_decoded():
    scores, labels = scores_and_labels(200, 3)
    labels[:, 2] = 0
    texts = page_curves(scores, labels, 0.1)
    assert texts[2] is None
    for task in range(2):
        raw = torch.frombuffer(bytearray(base64.b64decode(texts[task])), dtype=torch.uint8).double()
        rates = ((raw[0::2] + 256 * raw[1::2]) / 65535).view(-1, 2)
        whole = metrics.roc_curve(scores[:, task], labels[:, task])
        torch.testing.assert_close(rates[:, 0], whole.fpr, atol=1e-5, rtol=0)
        torch.testing.assert_close(rates[:, 1], whole.tpr, atol=1e-5, rtol=0)
