"""A run goes on with the data it was trained on, or not at all; other data is not judged in silence."""

import pytest
import yaml

from mmb.training import Run, RunError, evaluate_run, train
from tiny_runs import tiny_recipe

ROWS = [f"{k % 7},{k % 5},{k % 2}" for k in range(120)]
CHANGES = {
    "more rows": (["a,b,y", *ROWS, "1,2,0"], "the number of rows: 120 then, 121 now"),
    "fewer rows": (["a,b,y", *ROWS[:60]], "the number of rows"),
    "other labels": (["a,b,y", *ROWS[:-1], "0,4,0"], "the labels"),
    "other features": (["a,b,y", *(f"-{row}" for row in ROWS)], "the inputs"),
    "features of other rows": (
        ["a,b,y", *(f"{k % 7},{(k + 1) % 5},{k % 2}" for k in range(120))],
        "the inputs",
    ),
}


def write(path, lines):
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def run(tmp_path):
    """A run, and its data beside it."""
    write(tmp_path / "data.csv", ["a,b,y", *ROWS])
    data = {"name": "csv", "path": str(tmp_path / "data.csv"), "labels": "y"}
    train(found := Run.create(tmp_path / "run", tiny_recipe("pauc", data=data)))
    return found


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_does_not_go_on_with_other_data(run, tmp_path, change):
    lines, message = CHANGES[change]
    test = run.result()["test"]
    (run.path / "result.json").unlink()
    write(tmp_path / "data.csv", lines)
    with pytest.raises(RunError, match=f"data.*changed.*{message}"):
        train(run)
    write(tmp_path / "data.csv", ["a,b,y", *ROWS])
    assert train(run)["test"] == test


def edit(run, **changes):
    recipe = yaml.safe_load((run.path / "recipe.yaml").read_text())
    for section, values in changes.items():
        recipe[section] |= values
    (run.path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return Run.open(run.path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": {"name": "sgd"}}, "optimizer.name: 'adam' then, 'sgd' now"),
        ({"model": {"hidden": [9]}}, r"model.hidden: \[8\] then, \[9\] now"),
        ({"training": {"select": "auc"}}, "training.select: 'pauc' then, 'auc' now"),
        ({"objective": {"max_fpr": 0.2}}, "objective.max_fpr: 0.1 then, 0.2 now"),
        ({"training": {"precision": "bfloat16"}}, "training.precision: 'float32' then, 'bfloat16' now"),
    ],
)
def test_a_run_does_not_go_on_with_another_recipe(run, changes, message):
    (run.path / "result.json").unlink()
    with pytest.raises(RunError, match=f"recipe.*changed.*{message}"):
        train(edit(run, **changes))


@pytest.mark.parametrize("steps", [20, 50])
def test_how_long_to_train_may_change(run, steps):
    assert run.result()["steps"] == 40
    (run.path / "result.json").unlink()
    assert train(edit(run, training={"steps": steps}))["steps"] == max(40, steps)  # what is done is done


def test_evaluation_of_other_data_warns(run, tmp_path, recwarn):
    assert evaluate_run(run, "test")["mean"] == run.result()["test"]
    assert not [one for one in recwarn if "changed" in str(one.message)]
    write(tmp_path / "data.csv", ["a,b,y", *ROWS, "1,2,0"])
    with pytest.warns(UserWarning, match=r"data.*changed"):
        evaluate_run(run, "test")
