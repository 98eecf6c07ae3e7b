"""Predictions: of every row, in order, with the decisions that the thresholds imply."""

import csv
import json
import shutil

import pytest
import torch

from mmb.data import load
from mmb.metrics import operating_points
from mmb.training import Run, RunError, resolve, train
from mmb.training.loop.selected_weights import load_weights
from mmb.training.loop.setup import make_setup
from mmb.training.runs import checkpoint, prediction_tables
from mmb.training.runs.averaged_runs import Predictor
from mmb.training.runs.calibrate import fit_calibration
from mmb.training.runs.predict_file import predict_file
from mmb.training.runs.prediction_tables import task_columns
from tiny_runs import TINY, tiny_recipe

ENDS = ("", ":probability", ":decision")


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


def _run_of_tasks(folder, names):
    path = folder / "data.csv"
    rows = (f"{k % 7},{k % 2},{k % 3 // 2}" for k in range(90))
    path.write_text("\n".join([f"x,{','.join(names)}", *rows]))
    data = {"name": "csv", "path": str(path), "labels": names}
    return Run.create(folder / "run", tiny_recipe(data=data, training={"steps": 2})), path


def test_tasks_that_would_be_taken_for_other_columns_are_named(tmp_path):
    run, path = _run_of_tasks(tmp_path, ["a", "a:decision"])
    clash = "columns .*a:decision.* twice"
    with pytest.warns(UserWarning, match=f"mmb predict.*{clash}"):
        train(run)
    with pytest.raises(RunError, match=clash):
        predict_file(run, path, tmp_path / "out.csv")


def test_tasks_named_like_the_first_columns_are_told_apart(tmp_path):
    run, path = _run_of_tasks(tmp_path, ["usable", "b"])
    train(run)
    predict_file(run, path, tmp_path / "out.csv")
    header = (tmp_path / "out.csv").read_text().splitlines()[0].split(",")
    assert header[:7] == ["row", "usable", "problem", "x", "input:usable", "input:b", "task:usable"]


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
    assert header[:9] == ["row", "usable", "problem", "x", *names[:4], "input:a=b"]
    expected = [f"{name}{end}" for name in ("'=1+1", "'+x", "'-y", "'@z", "a=b") for end in ENDS]
    assert header[9:] == expected


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
    assert {bad[1][f"task_{task}{end}"] for task in range(4) for end in ENDS} == {""}
    assert "'x5': 'many' is not a number" in bad[1]["problem"]
    assert "cells than the header" in bad[3]["problem"]
    assert bad[1]["id"] == "1"
    assert sum(summary["problems"].values()) == 2


def test_where_to_write(run, tmp_path):
    write_rows(tmp_path / "new.csv", torch.zeros(1, 8))
    predict_file(run, tmp_path / "new.csv", tmp_path / "new" / "folder" / "out.csv")
    with pytest.raises(IsADirectoryError, match="folder"):
        predict_file(run, tmp_path / "new.csv", tmp_path / "new")


def test_an_empty_file_gives_an_empty_table(run, tmp_path):
    write_rows(tmp_path / "none.csv", torch.empty(0, 8))
    assert predict_file(run, tmp_path / "none.csv", tmp_path / "out.csv")["rows"] == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 1


def test_the_rate_can_be_chosen(run, tmp_path):
    write_rows(tmp_path / "new.csv", torch.randn(300, 8, generator=torch.Generator().manual_seed(0)))
    counts = [
        sum(predict_file(run, tmp_path / "new.csv", tmp_path / "out.csv", fpr)["positive"].values())
        for fpr in (0.01, 0.1, 0.5)
    ]
    assert counts == sorted(counts)
    assert counts[0] < counts[2]
    with pytest.raises(ValueError, match=r"fpr.*\(0, 1\].*1\.5"):
        predict_file(run, tmp_path / "new.csv", tmp_path / "out.csv", 1.5)


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


def more_seeds(run, tmp_path, **changes):
    other = Run.create(tmp_path / "other", tiny_recipe("ce", seed=5, **changes))
    train(other)
    return [run, other]


def test_several_runs_are_averaged_as_log_odds(run, tmp_path):
    runs = more_seeds(run, tmp_path)
    setup = make_setup(run.recipe)
    rows = setup.dataset.split["valid"]
    write_rows(tmp_path / "new.csv", setup.dataset.inputs[rows])
    found = predict_file(runs, tmp_path / "new.csv", tmp_path / "out.csv")
    assert found["runs"] == 2
    predictors = [Predictor.load(one) for one in runs]
    odds = [
        fit_calibration(one.validation.logits, one.validation.labels).log_odds(one.validation.logits)
        for one in predictors
    ]
    expected = (odds[0] + odds[1]) / 2
    scores = torch.tensor([float(row["task_1"]) for row in read_rows(tmp_path / "out.csv")])
    torch.testing.assert_close(scores.double(), expected[:, 1].sigmoid(), rtol=1e-4, atol=1e-5)
    decisions = torch.tensor([int(row["task_1:decision"]) for row in read_rows(tmp_path / "out.csv")])
    negatives = setup.dataset.labels[rows, 1] == 0
    assert decisions[negatives].double().mean() <= 0.1


def test_averages_rank_a_task_that_lacks_a_class_among_validation_rows(tmp_path):
    parts = ["train"] * 60 + ["valid"] * 20 + ["test"] * 20
    rows = "".join(f"{k % 10},{k % 2 if k < 60 else 0},{part}\n" for k, part in enumerate(parts))
    (tmp_path / "t.csv").write_text("x,y,part\n" + rows)
    data = {"name": "table", "path": str(tmp_path / "t.csv"), "labels": "y", "split_column": "part"}
    settings = {"data": data, "method": "soup", "branches": {"ce": {}}, "soup": {"start": False}}
    runs = [Run.create(tmp_path / f"{s}", tiny_recipe(**settings, seed=s)) for s in (0, 1)]
    for run in runs:
        train(run)
    predict_file(runs, tmp_path / "t.csv", tmp_path / "out.csv")
    assert len({row["y"] for row in read_rows(tmp_path / "out.csv")}) >= 10


def test_runs_that_do_not_belong_together_are_refused(run, tmp_path):
    write_rows(tmp_path / "new.csv", torch.zeros(1, 8))
    with pytest.raises(RunError, match="other validation rows"):
        predict_file(more_seeds(run, tmp_path / "a", data={"seed": 3}), tmp_path / "new.csv", tmp_path / "o")
    with pytest.raises(RunError, match="other tasks"):
        predict_file(more_seeds(run, tmp_path / "b", data={"tasks": 3}), tmp_path / "new.csv", tmp_path / "o")


def test_parquet_in_and_out(run, tmp_path):
    polars = pytest.importorskip("polars")
    inputs = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    write_rows(tmp_path / "new.csv", inputs)
    frame = polars.read_csv(tmp_path / "new.csv").with_columns(id=polars.lit("00A"))
    frame.write_parquet(tmp_path / "new.parquet")
    predict_file(run, tmp_path / "new.csv", tmp_path / "out.csv")
    predict_file(run, tmp_path / "new.parquet", tmp_path / "out.parquet")
    found = polars.read_parquet(tmp_path / "out.parquet")
    assert found["id"].to_list() == ["00A"] * 5
    assert found["task_0:decision"].dtype == polars.Int64
    for name in ("task_0", "task_0:probability"):
        expected = [float(row[name]) for row in read_rows(tmp_path / "out.csv")]
        assert found[name].to_list() == pytest.approx(expected, rel=1e-6)


def test_parquet_is_written_in_parts(tmp_path, monkeypatch):
    """Also where a part has nothing but gaps in a column."""
    polars = pytest.importorskip("polars")
    monkeypatch.setattr(prediction_tables, "_TOGETHER", 4)
    with prediction_tables.writing_table(tmp_path / "out.parquet", task_columns(["a"])) as write:
        for row in range(1, 12, 2):
            score = None if row < 8 else row / 10
            first = [[row, row + 1], [1, 0], ["", "why"]]
            write(first, {"id": [f"{row:03d}", "x"]}, [[score, score], [score, None], [None, 1]])
    found = polars.read_parquet(tmp_path / "out.parquet")
    assert found["row"].to_list() == list(range(1, 13))
    assert found["id"].to_list()[::2] == ["001", "003", "005", "007", "009", "011"]
    assert found["a"].to_list() == [None] * 8 + [0.9, 0.9, 1.1, 1.1]
    assert found["a:decision"].to_list() == [None, 1] * 6
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_cells_of_the_input_are_kept_as_they_are(run, tmp_path):
    write_rows(tmp_path / "new.csv", torch.zeros(2, 8), lambda text: text.replace("\n0,0.0", "\n007,1.50"))
    text = (tmp_path / "new.csv").read_text().replace("id,", "usable,", 1)
    (tmp_path / "new.csv").write_text(text)
    predict_file(run, tmp_path / "new.csv", tmp_path / "out.csv")
    rows = read_rows(tmp_path / "out.csv")
    assert rows[0]["input:usable"] == "007"
    assert rows[0]["x7"] == "1.50"
    assert rows[0]["usable"] == "1"


def test_decisions_with_a_promise(run, tmp_path):
    write_rows(tmp_path / "new.csv", torch.zeros(2, 8))
    found = predict_file(run, tmp_path / "new.csv", tmp_path / "out.csv", 0.3, confidence=0.6)
    validation = Predictor.load(run).validation
    points = operating_points(validation.logits, validation.labels, max_fpr=0.3, confidence=0.6)
    assert found["promise"]["threshold"] == pytest.approx(points.threshold.tolist())
    assert found["promise"]["fpr_high"] == pytest.approx(points.fpr_high.tolist())
    found = predict_file(run, tmp_path / "new.csv", tmp_path / "out.csv", 0.01)  # 30 rows are not enough:
    assert found["promise"] is None
    found = predict_file(run, tmp_path / "new.csv", tmp_path / "out.csv", tpr=0.9)
    assert found["promise"]["confidence"] == 0.95
    assert found["promise"]["threshold"] == [None] * 4
    assert {row["task_0:decision"] for row in read_rows(tmp_path / "out.csv")} == {""}
    with pytest.raises(ValueError, match="fpr, tpr"):
        predict_file(run, tmp_path / "new.csv", tmp_path / "out.csv", 0.1, tpr=0.9)


def test_runs_without_scores_of_validation_rows_predict_as_before(run, tmp_path):
    copy = Run.open(shutil.copytree(run.path, tmp_path / "run"))
    (copy.path / "validation.safetensors").unlink()
    write_rows(tmp_path / "new.csv", torch.zeros(2, 8))
    predict_file(copy, tmp_path / "new.csv", tmp_path / "out.csv", 0.2)
    assert {row["task_0:probability"] for row in read_rows(tmp_path / "out.csv")} == {""}
    with pytest.raises(ValueError, match=r"0\.3.*0\.01, 0\.02, 0\.05"):
        predict_file(copy, tmp_path / "new.csv", tmp_path / "out.csv", 0.3)
    for wrong in ({"confidence": 0.9}, {"tpr": 0.9}):
        with pytest.raises(RunError, match="validation rows"):
            predict_file(copy, tmp_path / "new.csv", tmp_path / "out.csv", **wrong)
    with pytest.raises(RunError, match="earlier version"):
        predict_file([run, copy], tmp_path / "new.csv", tmp_path / "out.csv")


def test_damaged_scores_are_named(run, tmp_path):
    copy = Run.open(shutil.copytree(run.path, tmp_path / "run"))
    file = copy.path / "validation.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(RunError, match=r"validation\.safetensors is damaged.*mmb resume"):
        Predictor.load(copy)


@pytest.fixture(scope="module")
def own_table(tmp_path_factory):
    """A run on a table with names, and the table."""
    folder = tmp_path_factory.mktemp("table")
    path = folder / "data.csv"
    rows = (
        f"{k % 7},{'uvw'[k % 3]},{'ill' if k % 7 > 4 else 'well'},{'' if k % 2 else 'well'}"
        for k in range(210)
    )
    path.write_text("\n".join(["x,k,a,b", *rows]))
    data = {"name": "table", "path": str(path), "labels": ["a"], "positive": "ill", "features": ["x", "k"]}
    run = Run.create(folder / "run", tiny_recipe("ce", data=data, training={"steps": 20}))
    train(run)
    return run, path


def test_names_that_training_rows_do_not_have_are_counted(own_table, tmp_path):
    run, path = own_table
    (tmp_path / "new.csv").write_text("k,x\nu,1\nnew,1\n,1\nother,1\n")
    found = predict_file(run, tmp_path / "new.csv", tmp_path / "out.csv")
    assert found["unseen"] == {"k": (2, "new")}
    assert found["labeled"] == []
    found = predict_file(run, path, tmp_path / "out.csv")
    assert found["unseen"] == {}
    assert found["labeled"] == ["a"]


@pytest.mark.parametrize("name", ["out.xlsx", "out.csv.gz", "out.json"])
def test_a_name_that_promises_something_else_is_refused(own_table, tmp_path, name):
    run, path = own_table
    with pytest.raises(ValueError, match=rf"output.*{name}.*out\.csv"):
        predict_file(run, path, tmp_path / name)
    assert not (tmp_path / name).exists()


def test_tabs_separate_cells_where_the_name_says_so(own_table, tmp_path):
    run, path = own_table
    predict_file(run, path, tmp_path / "out.csv")
    predict_file(run, path, tmp_path / "out.tsv")
    assert (tmp_path / "out.tsv").read_text().replace("\t", ",") == (tmp_path / "out.csv").read_text()


def test_rows_without_a_finite_score_are_flagged(run, tmp_path, monkeypatch):
    def logits(self, inputs):
        found = torch.zeros(len(inputs), 4)
        found[1, 2] = torch.nan
        return found

    monkeypatch.setattr(Predictor, "logits", logits)
    write_rows(tmp_path / "new.csv", torch.zeros(3, 8))
    assert predict_file(run, tmp_path / "new.csv", tmp_path / "out.csv")["unusable"] == 1
    rows = read_rows(tmp_path / "out.csv")
    assert [row["usable"] for row in rows] == ["1", "0", "1"]
    assert "finite" in rows[1]["problem"]
    assert rows[1]["task_2"] == rows[1]["task_2:decision"] == ""
