"""Metrics of the selected weights, and parts of the data that have none."""

import re

import pytest

from mmb.training import Observer, Run, evaluate_file, evaluate_run, train
from mmb.training.runs.log import read_log
from mmb.training.runs.tables import result_table
from tiny_runs import tiny_recipe

SHORT = {"steps": 12, "evaluate_every": 4, "checkpoint_every": 12}


def trained(path, method="pauc", **changes):
    run = Run.create(path, tiny_recipe(method, training=SHORT, **changes))
    return run, train(run)


def test_the_best_weights_on_validation_are_those_judged(tmp_path):
    run, result = trained(tmp_path / "run", "auc", optimizer={"lr": 0.03})
    valid = {r["step"]: r["pauc"] for r in read_log(run.path) if r["kind"] == "valid"}
    assert result["valid"]["pauc"] == max(valid.values()) == valid[result["best_step"]]
    assert evaluate_run(run, "valid")["mean"] == result["valid"]
    assert evaluate_run(run, "test")["mean"] == result["test"]
    assert evaluate_run(run, "test", max_fpr=0.5)["mean"]["pauc"] != result["test"]["pauc"]


def test_a_run_without_test_rows_finishes(tmp_path):
    _, result = trained(tmp_path / "run", data={"fractions": [0.6, 0.4, 0.0]})
    assert result["test"] == {"auc": None, "pauc": None, "ap": None}
    assert result["tasks"]["test_auc"] == [None] * 4
    assert result["valid"]["auc"] > 0


def test_tasks_that_cannot_be_trained_on_are_not_measured(tmp_path):
    parts = ["train"] * 20 + ["valid"] * 10 + ["test"] * 10
    lines = [f"{k},{k % 2},{int(part != 'train' and k % 3 == 0)},{part}" for k, part in enumerate(parts)]
    table = tmp_path / "d.csv"
    table.write_text("\n".join(["x,sick,rare,part", *lines]) + "\n")
    data = {"name": "csv", "path": str(table), "labels": "sick,rare", "split_column": "part"}
    own = {"model": {"name": "mlp", "hidden": []}, "sampler": {"batch_size": 8}}
    with pytest.warns(UserWarning, match="left out: rare"):
        run, result = trained(tmp_path / "run", "ce", data=data, **own)
    for part in ("valid", "test"):
        sick, rare = result["tasks"][f"{part}_auc"]
        assert rare is None
        assert result[part]["auc"] == sick
    with pytest.warns(UserWarning, match="left out: rare"):
        assert evaluate_run(run, "test")["mean"] == result["test"]
    of_file = evaluate_file(run, table)
    assert of_file["tasks"]["auc"][1] is None
    assert of_file["mean"]["auc"] == of_file["tasks"]["auc"][0]


def test_a_run_without_validation_rows_says_so(tmp_path):
    with pytest.raises(ValueError, match=r"validation rows.*split"):
        trained(tmp_path / "run", data={"fractions": [0.6, 0.0, 0.4]})


def test_parts_without_a_class(tmp_path):
    rows = "\n".join(
        f"{k},{k % 2 if k < 40 else 0},{'train' if k < 20 else 'valid' if k < 40 else 'test'}"
        for k in range(60)
    )
    (tmp_path / "d.csv").write_text(f"x,y,part\n{rows}\n")
    csv = {"name": "csv", "path": str(tmp_path / "d.csv"), "labels": "y", "split_column": "part"}
    settings = {"model": {"name": "mlp", "hidden": []}, "sampler": {"batch_size": 8}}
    run, result = trained(tmp_path / "run", "ce", data=csv, **settings)
    assert result["test"] == {"auc": None, "pauc": None, "ap": None}
    assert "NaN" not in (run.path / "result.json").read_text()
    (tmp_path / "d.csv").write_text((tmp_path / "d.csv").read_text().replace("1,valid", "0,valid"))
    with pytest.raises(ValueError, match="validation rows"):
        trained(tmp_path / "other", "ce", data=csv, **settings)
    lines = []

    class Listening(Observer):
        def say(self, message):
            lines.append(message)

    own = {"ce": {}, "pauc": {}, "other": {"method": "auc", "fresh": True}}
    for select in ("pauc", "brier"):
        training = {**SHORT, "select": select, "patience": 1, "tensorboard": True}
        recipe = tiny_recipe("soup", data=csv, branches=own, training=training, **settings)
        run = Run.create(tmp_path / select, recipe)
        result = train(run, Listening())
        assert len(lines) == 1
        assert re.search("validation rows.*last weights.*equal shares.*split", lines.pop())
        shares = {name: facts["share"] for name, facts in result["branches"].items()}
        assert shares == {"start": 0, "ce": 0.5, "pauc": 0.5, "other": 0}
        start = Run.open(run.path / "pretrain").result()
        assert (start["best_step"], start["valid"][select]) == (12, None)
        assert "NaN" not in (run.path / "result.json").read_text()
        assert " - " in result_table(result)
