"""What the metrics answer to wrong arguments: the argument, what was got, and where."""

import math
import warnings

import pytest
import torch

from mmb.metrics import (
    average_precision,
    bedroc,
    brier,
    calibration_error,
    enrichment_factor,
    evaluate,
    fpr_at_tpr,
    log_loss,
    ndcg,
    precision_at_k,
    recall_at_k,
    roc_auc,
    roc_curve,
    tpr_at_fpr,
    two_way_pauc,
)

GOOD = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
LABELS = torch.tensor([[0.0, 1.0], [1.0, math.nan], [0.0, 0.0]])
FUNCTIONS = [
    *(roc_auc, average_precision, two_way_pauc, evaluate, roc_curve, tpr_at_fpr, fpr_at_tpr),
    *(precision_at_k, recall_at_k, enrichment_factor, bedroc, ndcg, brier, log_loss, calibration_error),
]


def changed(tensor, value):
    tensor = tensor.clone()
    tensor[2, 1] = value
    return tensor


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("scores", "labels", "error", "message"),
    [
        (GOOD[:2], LABELS, ValueError, r"scores.*labels.*\[2, 2\].*\[3, 2\]"),
        (GOOD, LABELS[:, 0], ValueError, r"scores.*labels.*\[3, 2\].*\[3\]"),
        (GOOD[None], LABELS[None], ValueError, r"scores.*labels.*\[1, 3, 2\]"),
        (
            GOOD,
            changed(LABELS, 2),
            ValueError,
            r"labels.*NaN.*2\.0.*row 2, task 1",
        ),
        (GOOD, changed(LABELS, -1), ValueError, r"labels.*-1\.0.*row 2, task 1"),
        (GOOD, changed(LABELS, math.inf), ValueError, "labels.*inf.*row 2, task 1"),
        (GOOD, changed(LABELS, 0.5), ValueError, r"labels.*0\.5.*row 2, task 1"),
        (
            GOOD,
            changed(torch.ones(3, 2).int(), -2),
            ValueError,
            r"labels.*-1 .*-2.*row 2, task 1",
        ),
        (GOOD, changed(torch.ones(3, 2).byte(), 255), ValueError, "labels.*255.*row 2, task 1"),
        (changed(GOOD, math.nan), LABELS, ValueError, "scores.*nan.*row 2, task 1"),
        (changed(GOOD, math.inf), LABELS, ValueError, "scores.*inf.*row 2, task 1"),
        (changed(GOOD.half(), -math.inf), LABELS, ValueError, "scores.*-inf.*row 2, task 1"),
        (changed(GOOD.long(), -(2**63)), LABELS, ValueError, "scores.*row 2, task 1"),
        (GOOD, torch.full_like(LABELS, math.nan), ValueError, "labels.*missing"),
        (GOOD[:0], LABELS[:0], ValueError, "labels.*missing"),
        (GOOD.numpy(), LABELS, TypeError, "scores.*Tensor.*ndarray"),
        (GOOD, [0, 1], TypeError, "labels.*Tensor.*list"),
        (GOOD.to(torch.complex64), LABELS, TypeError, "scores.*complex64"),
        (GOOD, LABELS.to("meta"), ValueError, "cpu.*meta"),
    ],
)
def test_bad_input(function, scores, labels, error, message):
    with pytest.raises(error, match=message):
        function(scores, labels)


@pytest.mark.parametrize("function", [roc_auc, two_way_pauc, evaluate])
@pytest.mark.parametrize("max_fpr", [0, -0.1, 1.1, math.nan, "0.1", True])
def test_bad_max_fpr(function, max_fpr):
    with pytest.raises(ValueError, match=rf"max_fpr.*\(0, 1\].*{max_fpr}"):
        function(GOOD, LABELS, max_fpr=max_fpr)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"min_tpr": 1}, r"min_tpr.*\[0, 1\)"),
        ({"min_tpr": -0.1}, "min_tpr"),
        ({"min_tpr": math.nan}, "min_tpr"),
        ({"min_tpr": "0.5"}, "min_tpr.*'0.5'"),
        ({"min_fpr": None}, "min_fpr.*None"),
        ({"max_fpr": 0.3, "min_fpr": 0.3}, r"min_fpr.*max_fpr.*0\.3"),
        ({"min_fpr": -0.1}, "min_fpr"),
    ],
)
def test_bad_two_way_limits(limits, message):
    with pytest.raises(ValueError, match=message):
        two_way_pauc(GOOD, LABELS, **limits)


def test_no_warning_for_absent_classes():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(GOOD, torch.zeros(3, 2))
