"""Studies: run once, a first phase shared, tables made from the logs alone and checked against them."""

import re
import statistics
from pathlib import Path

import pytest
import yaml

from mmb.training import Run, RunError, TableStudy, plan_table
from mmb.training.runs.log import read_log
from mmb.training.studies import reproduce
from mmb.training.studies.reproduce import figures
from mmb.training.studies.reproduce.logs import logged_runs
from small_studies import call, write_study

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_study(tmp_path_factory.mktemp("studies"), paper={"pauc": 0.7374})
    assert call(folder, "table2", "--seeds", "2") == 0
    return folder


def test_the_table_is_what_the_runs_came_to(folder):
    runs = [Run.open(folder / "runs/synthetic/table2/pauc" / f"seed-{seed}") for seed in (0, 1)]
    values = [run.result()["test"]["pauc"] for run in runs]
    expected = f"{statistics.fmean(values):.4f} ({statistics.stdev(values):.4f})"
    line = next(line for line in (folder / "results/README.md").read_text().split("\n") if "MMB-pAUC" in line)
    assert line.split(" | ")[2] == expected
    assert line.endswith("0.7374 |")


def test_a_first_phase_is_trained_once_for_all_rows(folder):
    starts = {(folder / f"runs/synthetic/table2/{row}/seed-0/pretrain").resolve() for row in ("ce", "pauc")}
    assert starts == {(folder / "runs/synthetic/start/seed-0").resolve()}
    assert (folder / "results/synthetic/start/seed-0/result.json").exists()


def test_curves_go_on_where_the_first_phase_ended(folder):
    first, second = (
        read_log(folder / "results/synthetic" / path)[0]["steps_per_epoch"]
        for path in ("start/seed-0", "table2/ce/seed-0")
    )
    lines = (folder / "results/synthetic/table2/curves.csv").read_text().split()
    epochs = [float(line.split(",")[2]) for line in lines if line.startswith("ce,0,")]
    expected = [*(step / first for step in (0, 2, 4)), *(4 / first + step / second for step in (0, 3, 6))]
    assert epochs == pytest.approx(expected, rel=1e-5)


def test_the_figure_shows_the_second_phase_by_itself(folder, monkeypatch):
    kept = []
    monkeypatch.setattr(figures.require("matplotlib.pyplot", extra="training"), "close", kept.append)
    study = TableStudy.read(folder / "recipes", "synthetic/table2")
    figures.plot(study, logged_runs(study, folder / "results"), folder / "figure.png")
    whole, _, after, _ = (axis.lines[0] for axis in kept[0].axes)  # against epochs, seconds; then once more
    assert len(whole.get_xdata()) == 6
    assert after.get_xdata().tolist() == whole.get_xdata().tolist()[3:]
    assert after.get_ydata().tolist() == whole.get_ydata().tolist()[3:]


def test_checking_finds_what_was_changed_by_hand(folder, capsys):
    assert call(folder, "--check") == 0
    page = folder / "results/README.md"
    text = page.read_text()
    page.write_text("# Kept\n\n" + text)  # what stands before the tables is the author's
    assert call(folder, "--check") == 0
    page.write_text(text.replace("A table", "A better table"))
    assert call(folder, "--check") == 1
    assert "README.md" in capsys.readouterr().err
    page.write_text(text)


@pytest.mark.parametrize(
    ("damaged", "content", "message"),
    [
        ("start/seed-0/result.json", None, "cannot be read.*elsewhere"),
        ("table2/ce/seed-1/result.json", "{", "cannot be read"),
        ("start/seed-1/metrics.jsonl", None, ".*missing"),
        ("table2/pauc/seed-0/metrics.jsonl", "", ".*empty"),
    ],
)
def test_a_log_that_lacks_or_is_damaged_is_named(folder, capsys, damaged, content, message):
    file = folder / "results/synthetic" / damaged
    kept = file.read_text()
    file.unlink() if content is None else file.write_text(content)
    code = call(folder, "--check")
    file.write_text(kept)
    assert code == 1
    assert re.search(f"{re.escape(str(file))}: {message}", capsys.readouterr().err)


def test_finished_runs_are_not_run_again(folder):
    result = folder / "runs/synthetic/table2/ce/seed-0/result.json"
    before = result.stat().st_mtime_ns
    assert call(folder, "table2", "--seeds", "2") == 0
    assert result.stat().st_mtime_ns == before


def test_some_rows_are_run_alone(tmp_path, capsys):
    write_study(tmp_path)
    assert call(tmp_path, "table2", "--seeds", "1", "--rows", "mauc") == 2
    assert "'mauc'; its rows are ce, pauc" in capsys.readouterr().err
    assert call(tmp_path, "table2", "--seeds", "1", "--rows", "pauc") == 0
    assert [path.name for path in (tmp_path / "results/synthetic/table2").iterdir() if path.is_dir()] == [
        "pauc"
    ]


def test_several_tables_are_made_at_once_and_share_their_first_phase(tmp_path, capsys):
    for table in ("table1", "table2"):
        write_study(tmp_path, table, rows=["ce"])
    assert call(tmp_path, "table1", "table2", "--seeds", "1") == 0
    assert "synthetic/table1, synthetic/table2: 3 runs" in capsys.readouterr().err
    assert (tmp_path / "results/README.md").read_text().count("| CE |") == 2


def test_rows_must_be_comparable(folder):
    study = TableStudy.read(folder / "recipes", "synthetic/table2")
    path = study.recipes["pauc"]
    kept = path.read_text()
    path.write_text(yaml.safe_dump({"base": "../rows.yaml", "method": "pauc", "training": {"steps": 7}}))
    with pytest.raises(RunError, match=r"fair.*steps"):
        plan_table(study, 1, folder / "elsewhere", folder / "results")
    path.write_text(kept)


def test_committed_tables_are_what_their_logs_give():
    studies = reproduce.studies_with_logs(ROOT / "recipes/reproduce", ROOT / "results")
    assert studies
    assert not reproduce.differences(studies, ROOT / "results")
