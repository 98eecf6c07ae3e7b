"""A run goes on with the data it was trained on, or not at all; other data is not judged in silence."""

import pytest

from mmb.training import Run, RunError, train
from mmb.training.finish import evaluate_run
from tiny_runs import tiny_recipe

ROWS = [f"{k % 7},{k % 5},{k % 2}" for k in range(120)]
CHANGES = {
    "more rows": (["a,b,y", *ROWS, "1,2,0"], "the number of rows: 120 then, 121 now"),
    "fewer rows": (["a,b,y", *ROWS[:60]], "the number of rows"),
    "other labels": (["a,b,y", *ROWS[:-1], "0,4,0"], "the labels"),
}


def write(path, lines):
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def run(tmp_path):
    write(tmp_path / "data.csv", ["a,b,y", *ROWS])
    data = {"name": "csv", "path": str(tmp_path / "data.csv"), "labels": "y"}
    run = Run.create(tmp_path / "run", tiny_recipe("pauc", data=data))
    train(run)
    return run


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_does_not_go_on_with_other_data(run, tmp_path, change):
    lines, message = CHANGES[change]
    test = run.result()["test"]
    (run.path / "result.json").unlink()
    write(tmp_path / "data.csv", lines)
    with pytest.raises(RunError, match=f"the data has changed since the run was trained: {message}"):
        train(run)
    write(tmp_path / "data.csv", ["a,b,y", *ROWS])
    assert train(run)["test"] == test


def test_evaluation_of_other_data_warns(run, tmp_path, recwarn):
    assert evaluate_run(run, "test")["mean"] == run.result()["test"]
    assert not [one for one in recwarn if "changed" in str(one.message)]
    write(tmp_path / "data.csv", ["a,b,y", *ROWS, "1,2,0"])
    with pytest.warns(UserWarning, match="the data has changed since the run was trained"):
        evaluate_run(run, "test")
