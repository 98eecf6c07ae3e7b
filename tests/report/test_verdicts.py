"""Verdicts on runs made to go well or wrong; `benchmarks/verdicts.py` has more of them."""

import pytest

from made_runs import bank, judge

CASES = [(made, seed) for made, seed in bank([0]) if "," not in made.kind or made.kind.startswith("mis")]


@pytest.mark.parametrize(("made", "seed"), CASES, ids=[made.kind for made, _ in CASES])
def test_the_verdict_is_right(tmp_path, made, seed):
    found, is_right = judge(tmp_path, made, seed)
    assert is_right, (made, found["verdict"], found["advice"])


def test_two_positives_a_task_are_not_called_broken(tmp_path):
    made, seed = next(case for case in bank([0]) if case[0].kind.startswith("underpowered"))
    found, _ = judge(tmp_path, made, seed)
    assert found["verdict"] == "Cannot tell: 8 positives among the test rows."
