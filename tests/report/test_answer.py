import pytest

from mmb.report.answer import answer


def area(value, low=None, high=None):
    return {"value": value, "low": low, "high": high}


def methods(*values, runs=2):
    return [
        {"name": name, "runs": runs, "pauc": area(value, value and value - 0.1, value and value + 0.05)}
        for name, value in zip("ABC", values, strict=False)
    ]


def pair(a, b, value, p):
    return {"a": a, "b": b, "pauc": {**area(value, value - 0.01, value + 0.01), "adjusted": p}}


def run(method, status="good", verdict="Working: fine."):
    return {"method": method, "status": status, "verdict": verdict}


GOOD = [run(0), run(1), run(2)]


def test_a_clear_winner_is_named_with_its_smallest_lead():
    pairs = [pair(2, 0, 0.05, 0.0001), pair(2, 1, 0.02, 0.01), pair(0, 1, 0.03, 0.4)]
    found = answer(methods(0.7, 0.73, 0.75), pairs, GOOD, "pauc", 0.1)
    assert found["what"] == (
        "C is best, with a mean partial AUC (FPR ≤ 0.1) of 0.750 (0.650 to 0.800), +0.020 over B."
    )
    assert found["sure"] == (
        "Sure: significantly more than A and B. 95% interval of the lead: +0.010 to +0.030; p 0.010, "
        "adjusted for 6 comparisons."
    )


def test_a_lead_that_may_be_noise_is_called_so():
    pairs = [pair(1, 0, 0.05, 0.001), pair(1, 2, 0.001, 0.8)]
    found = answer(methods(0.7, 0.75, 0.749, runs=1), pairs, GOOD, "pauc", 0.1)
    assert "may be noise" in found["what"]
    assert found["sure"].startswith("Not sure: the lead over C is not significant. That over A is.")
    assert "single run" in found["sure"]


@pytest.mark.parametrize(
    ("status", "method", "words"), [("bad", 0, "Runs of A do not work"), ("unknown", 1, "Positives are few")]
)
def test_what_the_verdicts_put_in_doubt(status, method, words):
    runs = [run(0), run(1), run(method, status)]
    found = answer(methods(0.7, 0.75), [pair(1, 0, 0.05, 0.001)], runs, "pauc", 0.1)
    assert words in found["sure"]


def test_one_method_has_a_value_and_a_verdict():
    found = answer(methods(0.7), [], [run(0)], "pauc", 0.1)
    assert found["what"].startswith("A reaches a mean partial AUC")
    assert found["sure"].startswith("Working: fine. There is only one method")


def test_nothing_to_compare():
    found = answer(methods(None, None), [pair(0, 1, 0.0, None)], GOOD, "pauc", 0.1)
    assert "nothing to compare" in found["what"]
