"""What the metrics answer to wrong arguments: the argument, what was got, and where."""

import math
import warnings

import pytest
import torch

from mmb.metrics import average_precision, evaluate, roc_auc, roc_curve, two_way_partial_auc

GOOD = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
LABELS = torch.tensor([[0.0, 1.0], [1.0, math.nan], [0.0, 0.0]])
FUNCTIONS = [roc_auc, average_precision, two_way_partial_auc, evaluate, roc_curve]


def changed(tensor, value):
    tensor = tensor.clone()
    tensor[2, 1] = value
    return tensor


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("scores", "labels", "error", "message"),
    [
        (GOOD[:2], LABELS, ValueError, r"scores \[2, 2\] and labels \[3, 2\]"),
        (GOOD, LABELS[:, 0], ValueError, r"scores \[3, 2\] and labels \[3\]"),
        (GOOD[None], LABELS[None], ValueError, r"shape \[n\] or both \[n, m\]"),
        (
            GOOD,
            changed(LABELS, 2),
            ValueError,
            r"0, 1 or missing \(NaN in torch.float32\), got 2.0 at row 2, task 1",
        ),
        (GOOD, changed(LABELS, -1), ValueError, "got -1.0 at row 2, task 1"),
        (GOOD, changed(LABELS, math.inf), ValueError, "got inf at row 2, task 1"),
        (GOOD, changed(LABELS, 0.5), ValueError, "got 0.5 at row 2, task 1"),
        (
            GOOD,
            changed(torch.ones(3, 2).int(), -2),
            ValueError,
            r"\(-1 in torch.int32\), got -2 at row 2, task 1",
        ),
        (GOOD, changed(torch.ones(3, 2).byte(), 255), ValueError, "got 255 at row 2, task 1"),
        (changed(GOOD, math.nan), LABELS, ValueError, "scores must be finite .* got nan at row 2, task 1"),
        (changed(GOOD, math.inf), LABELS, ValueError, "got inf at row 2, task 1"),
        (changed(GOOD.half(), -math.inf), LABELS, ValueError, "got -inf at row 2, task 1"),
        (changed(GOOD.long(), -(2**63)), LABELS, ValueError, "at row 2, task 1"),
        (GOOD, torch.full_like(LABELS, math.nan), ValueError, "at least one entry that is not missing"),
        (GOOD[:0], LABELS[:0], ValueError, "at least one entry that is not missing"),
        (GOOD.numpy(), LABELS, TypeError, "scores must be a torch.Tensor, got ndarray"),
        (GOOD, [0, 1], TypeError, "labels must be a torch.Tensor, got list"),
        (GOOD.to(torch.complex64), LABELS, TypeError, "scores .* got torch.complex64"),
        (GOOD, LABELS.to("meta"), ValueError, "scores are on cpu and labels on meta"),
    ],
)
def test_bad_input(function, scores, labels, error, message):
    with pytest.raises(error, match=message):
        function(scores, labels)


@pytest.mark.parametrize("function", [roc_auc, two_way_partial_auc, evaluate])
@pytest.mark.parametrize("max_fpr", [0, -0.1, 1.1, math.nan])
def test_bad_max_fpr(function, max_fpr):
    with pytest.raises(ValueError, match=rf"max_fpr must be in \(0, 1\], got {max_fpr}"):
        function(GOOD, LABELS, max_fpr=max_fpr)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"min_tpr": 1}, r"min_tpr must be in \[0, 1\), got 1"),
        ({"min_tpr": -0.1}, "min_tpr"),
        ({"min_tpr": math.nan}, "min_tpr"),
        ({"max_fpr": 0.3, "min_fpr": 0.3}, r"min_fpr must be in \[0, max_fpr\) with max_fpr=0.3, got 0.3"),
        ({"min_fpr": -0.1}, "min_fpr"),
    ],
)
def test_bad_two_way_limits(limits, message):
    with pytest.raises(ValueError, match=message):
        two_way_partial_auc(GOOD, LABELS, **limits)


def test_no_warning_for_absent_classes():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(GOOD, torch.zeros(3, 2))
