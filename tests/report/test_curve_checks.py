import pytest

from mmb.report.curve_checks import better_step_size, check_divergence, check_shape


def titles(checks):
    return [(found.status, found.title) for found in checks]


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([0.5, 0.7, 0.8, 0.805, 0.8], ("good", "leveled off")),
        ([0.5, 0.6, 0.7, 0.8], ("remark", "it was still improving")),
        ([0.5, 0.8, 0.8, 0.75], ("remark", "it is past its best at the end")),
        ([0.5, 0.8, 0.6, 0.55], ("remark", "it collapsed after its best")),
    ],
)
def test_how_a_curve_ends(curve, expected):
    assert titles(check_shape(curve, 0.01, "auc", finished=True)) == [expected]


def test_a_run_in_training_may_still_rise():
    assert titles(check_shape([0.5, 0.6], 0.01, "auc", finished=False)) == [("good", "still improving")]


def test_metrics_where_lower_is_better_fall():
    assert titles(check_shape([0.9, 0.7, 0.5], 0.01, "fpr_at_tpr", True)) == [
        ("remark", "it was still improving")
    ]


def losses(*values):
    return [{"kind": "train", "step": step, "loss": value} for step, value in enumerate(values)]


def test_a_loss_that_blows_up_diverges():
    (found,) = check_divergence(losses(1.0, 0.8, 5.0, 40.0, 90.0))
    assert found.status == "bad"
    assert "lower optimizer.lr" in found.advice
    assert not list(check_divergence(losses(1.0, 0.8, 0.5, 0.4, 2.0)))
    assert not list(check_divergence(losses(0.1, 0.7, 0.9, 1.0, 1.0)))  # duals that catch up
    assert not list(check_divergence([]))


def test_an_error_of_training_is_told_from_others():
    error = {"kind": "error", "step": 7, "error": "TrainingError", "message": "the loss is nan"}
    (found,) = check_divergence([error])
    assert "step 7: the loss is nan" in found.text
    assert not list(check_divergence([{**error, "error": "OSError"}]))


@pytest.mark.parametrize(
    ("values", "curve", "word"),
    [
        ((9.0, 1.0, 1.0, 1.0), (0.5, 0.5), "lower"),
        ((1.0, 1.0, 1.0, 1.0), (0.5, 0.5), "raise"),
        ((1.0, 1.0, 1.0, 0.9), (0.5, 0.45), "higher, then lower"),
    ],
)
def test_the_direction_of_a_better_step_size(values, curve, word):
    log = losses(*values) + [{"kind": "valid", "step": 0, "auc": value} for value in curve]
    assert word in better_step_size(log)


def test_few_losses_give_no_direction():
    assert "higher, then lower" in better_step_size(losses(1.0, 0.5))
