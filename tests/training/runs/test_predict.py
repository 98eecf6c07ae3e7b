"""Predictions: of every row, in order, with the decisions that the thresholds imply."""

import csv
import json
import shutil

import pytest
import torch

from mmb.data import load
from mmb.training import Run, RunError, resolve, train
from mmb.training.loop.outcome import load_weights
from mmb.training.loop.setup import make_setup
from mmb.training.runs import checkpoint
from mmb.training.runs.predict import Predictor, predict_file
from tiny_runs import TINY, tiny_recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = Run.create(tmp_path_factory.mktemp("runs") / "run", tiny_recipe("pauc"))
    train(run)
    return run


def write_rows(path, inputs, change=None):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *(f"x{j}" for j in reversed(range(8)))])  # another order, one more column
        for number, row in enumerate(inputs.tolist()):
            writer.writerow([number, *(repr(value) for value in reversed(row))])
    if change:
        path.write_text(change(path.read_text()))


def read_rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("names", [["usable", "b"], ["a", "a:decision"]])
def test_tasks_that_would_be_taken_for_other_columns_are_named(tmp_path, names):
    path = tmp_path / "data.csv"
    path.write_text(
        "\n".join([f"x,{','.join(names)}", *(f"{k % 7},{k % 2},{k % 3 // 2}" for k in range(90))])
    )
    data = {"name": "csv", "path": str(path), "labels": names}
    run = Run.create(tmp_path / "run", tiny_recipe(data=data, training={"steps": 2}))
    clash = f"columns .*{names[-1] if ':' in names[-1] else 'usable'}.* twice"
    with pytest.warns(UserWarning, match=f"mmb predict.*{clash}"):
        train(run)
    with pytest.raises(RunError, match=clash):
        predict_file(run, path, tmp_path / "out.csv")


def test_names_of_tasks_are_no_formulas(tmp_path):
    names = ["=1+1", "+x", "-y", "@z", "a=b"]
    path = tmp_path / "data.csv"
    rows = (",".join([str(k % 7), *(str((k + j) % 2) for j in range(5))]) for k in range(90))
    path.write_text("\n".join([f"x,{','.join(names)}", *rows]))
    data = {"name": "csv", "path": str(path), "labels": names}
    run = Run.create(tmp_path / "run", tiny_recipe("ce", data=data, training={"steps": 2}))
    train(run)
    found = predict_file(run, path, tmp_path / "out.csv")
    assert list(found["positive"]) == names
    header = (tmp_path / "out.csv").read_text().splitlines()[0].split(",")
    assert header == [
        *("row", "usable", "'=1+1", "'=1+1:decision", "'+x", "'+x:decision"),
        *("'-y", "'-y:decision", "'@z", "'@z:decision", "a=b", "a=b:decision"),
    ]


def test_scores_and_decisions_are_those_of_the_selected_model(run, tmp_path):
    setup = make_setup(run.recipe)
    load_weights(setup, run.best_checkpoint())
    rows = setup.dataset.split["valid"]
    write_rows(tmp_path / "new.csv", setup.dataset.inputs[rows])
    summary = predict_file(run, tmp_path / "new.csv", tmp_path / "out.csv")
    setup.model.eval()
    logits = setup.model(setup.dataset.inputs[rows]).detach()
    found = read_rows(tmp_path / "out.csv")
    assert [int(row["row"]) for row in found] == list(range(1, len(rows) + 1))
    thresholds = json.loads((run.path / "predictor.json").read_text())["thresholds"]["0.1"]
    for task, name in enumerate(setup.dataset.task_names):
        scores = torch.tensor([float(row[name]) for row in found])
        torch.testing.assert_close(scores, logits[:, task].sigmoid(), rtol=1e-5, atol=1e-6)
        decisions = torch.tensor([int(row[f"{name}:decision"]) for row in found])
        assert torch.equal(decisions, (logits[:, task] > thresholds[task]).long())
        assert summary["positive"][name] == decisions.sum()
        negatives = setup.dataset.labels[rows, task] == 0
        assert decisions[negatives].double().mean() <= 0.1  # the rows the thresholds come from


def test_bad_rows_are_flagged_and_kept(run, tmp_path):
    inputs = load("synthetic", **{k: v for k, v in run.recipe.data.items() if k != "name"}).inputs[:4]

    def break_rows(text):
        lines = text.splitlines()
        cells = lines[2].split(",")
        lines[2] = ",".join([*cells[:3], "many", *cells[4:]])  # a word among numbers
        lines[4] = lines[4] + ",1,2"  # too many cells
        return "\n".join(lines) + "\n"

    write_rows(tmp_path / "good.csv", inputs)
    write_rows(tmp_path / "bad.csv", inputs, break_rows)
    predict_file(run, tmp_path / "good.csv", tmp_path / "good-out.csv")
    summary = predict_file(run, tmp_path / "bad.csv", tmp_path / "bad-out.csv")
    good, bad = read_rows(tmp_path / "good-out.csv"), read_rows(tmp_path / "bad-out.csv")
    assert (summary["rows"], summary["unusable"]) == (4, 2)
    assert [row["usable"] for row in bad] == ["1", "0", "1", "0"]
    assert bad[0] == good[0]
    assert bad[2] == good[2]
    assert set(bad[1].values()) == {"2", "0", ""}


def test_where_to_write(run, tmp_path):
    write_rows(tmp_path / "new.csv", torch.zeros(1, 8))
    predict_file(run, tmp_path / "new.csv", tmp_path / "new" / "folder" / "out.csv")
    with pytest.raises(IsADirectoryError, match="folder"):
        predict_file(run, tmp_path / "new.csv", tmp_path / "new")


def test_an_empty_file_gives_an_empty_table(run, tmp_path):
    write_rows(tmp_path / "none.csv", torch.empty(0, 8))
    assert predict_file(run, tmp_path / "none.csv", tmp_path / "out.csv")["rows"] == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 1


def test_the_rate_can_be_chosen_among_those_kept(run, tmp_path):
    write_rows(tmp_path / "new.csv", torch.randn(300, 8, generator=torch.Generator().manual_seed(0)))
    counts = [
        sum(predict_file(run, tmp_path / "new.csv", tmp_path / "out.csv", fpr)["positive"].values())
        for fpr in (0.01, 0.1, 0.5)
    ]
    assert counts == sorted(counts)
    assert counts[0] < counts[2]
    with pytest.raises(ValueError, match=r"fpr.*0\.3.*0\.01, 0\.02, 0\.05, 0\.1, 0\.2, 0\.5"):
        predict_file(run, tmp_path / "new.csv", tmp_path / "out.csv", 0.3)


def test_at_a_rate_of_one_all_are_called_positive(tmp_path):
    run = Run.create(tmp_path / "run", tiny_recipe("ce", training={"steps": 2, "max_fpr": 1.0}))
    train(run)
    write_rows(tmp_path / "new.csv", torch.zeros(3, 8))
    assert set(predict_file(run, tmp_path / "new.csv", tmp_path / "out.csv")["positive"].values()) == {3}
    assert {row["task_0:decision"] for row in read_rows(tmp_path / "out.csv")} == {"1"}


@pytest.mark.parametrize("name", ["result.json", "predictor.json"])
@pytest.mark.parametrize("content", [b"", b'{"best_step": 1', b"[1]", b"{}", b"\xff\xfe"])
def test_damaged_outcomes_are_named_and_made_anew(run, tmp_path, name, content):
    copy = Run.open(shutil.copytree(run.path, tmp_path / "run"))
    (copy.path / name).write_bytes(content)
    with pytest.raises(RunError, match=rf"{name}.*damaged.*result\.json.*mmb resume"):
        Predictor.load(copy)
    (copy.path / "result.json").unlink()
    assert train(copy)["test"] == run.result()["test"]
    Predictor.load(copy)


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("result.json", lambda content: (content.pop("best_step"), content.pop("sha256")), "best_step"),
        ("result.json", lambda content: content.update(steps=7), "changed"),
        ("predictor.json", lambda content: (content.pop("thresholds"), content.pop("sha256")), "thresholds"),
        (
            "predictor.json",
            lambda content: content["thresholds"].update({"0.1": [0.0] * 4}),
            "changed",
        ),
    ],
)
def test_outcomes_that_are_not_whole_or_were_changed_are_named(run, tmp_path, name, change, problem):
    copy = Run.open(shutil.copytree(run.path, tmp_path / "run"))
    content = json.loads((copy.path / name).read_text())
    change(content)
    (copy.path / name).write_text(json.dumps(content))
    with pytest.raises(RunError, match=rf"{name}.*damaged.*{problem}.*result\.json.*mmb resume"):
        Predictor.load(copy)


def test_outcomes_without_a_checksum_are_read(run, tmp_path):
    copy = Run.open(shutil.copytree(run.path, tmp_path / "run"))
    for name in ("result.json", "predictor.json"):
        content = json.loads((copy.path / name).read_text())
        del content["sha256"]
        (copy.path / name).write_text(json.dumps(content))
    assert copy.result() == run.result()
    assert Predictor.load(copy).thresholds == Predictor.load(run).thresholds


def test_lost_weights_can_be_trained_again(run, tmp_path):
    copy = Run.open(shutil.copytree(run.path, tmp_path / "run"))
    file = copy.best_checkpoint() / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(checkpoint.CheckpointError, match=r"selected weights.*mmb resume"):
        Predictor.load(copy)
    shutil.rmtree(copy.checkpoints)
    (copy.path / "result.json").unlink()
    assert train(copy)["test"] == run.result()["test"]


def test_only_finished_runs_predict(tmp_path):
    run = Run.create(tmp_path / "run", tiny_recipe())
    with pytest.raises(RunError, match="not finished"):
        Predictor.load(run)


def test_the_input_is_not_overwritten(run, tmp_path):
    write_rows(tmp_path / "new.csv", torch.zeros(3, 8))
    before = (tmp_path / "new.csv").read_text()
    with pytest.raises(ValueError, match=r"output.*new\.csv"):
        predict_file(run, tmp_path / "new.csv", tmp_path / "." / "new.csv")
    assert (tmp_path / "new.csv").read_text() == before


def test_tasks_without_positives_are_not_scored(tmp_path):
    lines = [f"{k % 5},{k % 2},0" for k in range(60)]
    (tmp_path / "table.csv").write_text("x,y,never\n" + "\n".join(lines) + "\n")
    data = {"name": "csv", "path": str(tmp_path / "table.csv"), "labels": "y,never"}
    recipe = resolve({**TINY, "method": "ce", "data": data, "training": {**TINY["training"], "steps": 2}})
    run = Run.create(tmp_path / "run", recipe)
    with pytest.warns(UserWarning, match=r"no positive.*never"):
        train(run)
    (tmp_path / "new.csv").write_text("x\n1\n4\n")
    found = predict_file(run, tmp_path / "new.csv", tmp_path / "out.csv", 0.5)
    assert found["untrained"] == ["never"]
    rows = read_rows(tmp_path / "out.csv")
    assert [(row["never"], row["never:decision"]) for row in rows] == [("", ""), ("", "")]
    assert all(row["y"] and row["y:decision"] in "01" for row in rows)
