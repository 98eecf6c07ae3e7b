"""Studies of how many rows a step has: equal steps, and a figure over steps with its data."""

import pytest

from mmb.training import RunError, TableStudy, plan_table
from mmb.training.runs.log import read_log
from mmb.training.studies.reproduce import figures
from mmb.training.studies.reproduce.logs import logged_runs
from small_studies import call, write_study

ROWS = ["b8", "b16", "i4"]
CHANGES = {
    row: {"method": "auc-ct", "sampler": {"kind": "tasks", "rows_per_task": rows, "tasks_per_step": tasks}}
    for row, (rows, tasks) in {"b8": (8, 2), "b16": (16, 2), "i4": (8, 4)}.items()
}
ABOUT = {
    "rows": ROWS,
    "titles": {"b8": "B = 8, I = 2", "b16": "B = 16, I = 2", "i4": "B = 8, I = 4"},
    "panels": {"B rows": ["b8", "b16"], "I tasks": ["b8", "i4"]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("panels")
    write_study(folder, "ablation", changes=CHANGES, compare="steps", **ABOUT)
    assert call(folder, "ablation", "--seeds", "1") == 0
    return folder


def test_the_data_has_every_step_that_was_logged(folder):
    header, *lines = (folder / "results/synthetic/ablation/steps.csv").read_text().split()
    assert header == "row,seed,step,seconds,loss,auc,pauc,ap"
    found = [line.split(",") for line in lines if line.startswith("i4,0,")]
    assert [int(cells[2]) for cells in found] == [0, 3, 4, 6]  # evaluated every 3, logged every 4 and last
    records = {(r["kind"], r["step"]): r for r in read_log(folder / "results/synthetic/ablation/i4/seed-0")}
    assert float(found[3][4]) == pytest.approx(records["train", 6]["loss"], rel=1e-5)
    assert float(found[1][6]) == pytest.approx(records["valid", 3]["pauc"], rel=1e-5)
    assert found[1][4] == found[2][5] == ""  # not logged at that step
    assert not (folder / "results/synthetic/ablation/curves.csv").exists()


def test_the_table_names_rows_and_tasks(folder):
    text = (folder / "results/README.md").read_text()
    assert all(f"| {title} | 0." in text for title in ABOUT["titles"].values())
    assert call(folder, "--check") == 0


def test_each_panel_shows_its_rows(folder, monkeypatch):
    study = TableStudy.read(folder / "recipes", "synthetic/ablation")
    kept = []
    monkeypatch.setattr(figures.require("matplotlib.pyplot", extra="training"), "close", kept.append)
    figures.plot(study, logged_runs(study, folder / "results"), folder / "figure.png")
    axes = kept[0].axes  # line by line: metric over steps, over seconds, loss over steps
    assert [axis.get_title() for axis in axes[:2]] == list(study.panels)
    labels = [[line.get_label() for line in axis.lines] for axis in axes]
    assert labels == [["B = 8, I = 2", "B = 16, I = 2"], ["B = 8, I = 2", "B = 8, I = 4"]] * 3
    assert axes[0].lines[0].get_xdata().tolist() == [0, 3, 6]
    assert axes[4].lines[0].get_xdata().tolist() == [4, 6]


def test_metrics_on_training_rows_are_drawn_where_they_were_logged(tmp_path, monkeypatch):
    logged = {row: {"method": row, "training": {"train_rows": 40}} for row in ("ce", "pauc")}
    write_study(tmp_path, changes=logged)
    assert call(tmp_path, "table2", "--seeds", "1") == call(tmp_path, "--check") == 0
    header, *lines = (tmp_path / "results/synthetic/table2/curves.csv").read_text().split()
    assert header == "row,seed,epoch,seconds,auc,pauc,ap,train_pauc"
    records = read_log(tmp_path / "results/synthetic/table2/ce/seed-0")
    last = [record for record in records if record["kind"] == "valid"][-1]
    found = [line.split(",") for line in lines if line.startswith("ce,0,")]
    assert float(found[-1][-1]) == pytest.approx(last["train_pauc"], rel=1e-5)
    assert found[0][-1] == ""  # of the first phase, which does not log it
    kept = []
    monkeypatch.setattr(figures.require("matplotlib.pyplot", extra="training"), "close", kept.append)
    study = TableStudy.read(tmp_path / "recipes", "synthetic/table2")
    figures.plot(study, logged_runs(study, tmp_path / "results"), tmp_path / "figure.png")
    assert [axis.get_ylabel() for axis in kept[0].axes[::2]] == ["validation pAUC"] * 2 + ["training pAUC"]
    assert kept[0].axes[4].lines[0].get_ydata()[-1] == last["train_pauc"]


def test_by_default_steps_have_equally_many_rows(folder, tmp_path):
    write_study(tmp_path, "ablation", changes=CHANGES, **ABOUT)
    study = TableStudy.read(tmp_path / "recipes", "synthetic/ablation")
    with pytest.raises(RunError, match=r"rows per step.*32; 64"):
        plan_table(study, 1, tmp_path / "runs", tmp_path / "results")
