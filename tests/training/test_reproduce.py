"""Studies: run once, a first phase shared, tables made from the logs alone and checked against them."""

import statistics
from pathlib import Path

import pytest
import yaml

from mmb.cli import main
from mmb.training import reproduce
from mmb.training.log import read_log
from mmb.training.resolve import RecipeError
from mmb.training.run import Run, RunError
from tiny_runs import TINY

ROWS = {
    **TINY,
    "training": {**TINY["training"], "steps": 6, "evaluate_every": 3},
    "init_heads": True,
    "pretrain": {"base": "start.yaml"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies")
    table = folder / "recipes" / "synthetic" / "table2"
    table.mkdir(parents=True)

    def write(path, content):
        path.write_text(yaml.safe_dump(content))

    write(table.parent / "rows.yaml", ROWS)
    write(table.parent / "start.yaml", {"method": "ce", "training": {"steps": 4, "evaluate_every": 2}})
    for method in ("ce", "pauc"):
        write(table / f"{method}.yaml", {"base": "../rows.yaml", "method": method})
    about = {"title": "A table", "metric": "pauc", "rows": ["ce", "pauc"]}
    write(table / "study.yaml", {**about, "paper": {"pauc": 0.7374}, "notes": "Why."})
    assert call(folder, "table2", "--data", "synthetic", "--seeds", "2") == 0
    return folder


def call(folder, *arguments):
    places = ["--recipes", folder / "recipes", "--output", folder / "runs", "--results", folder / "results"]
    return main(["reproduce", *map(str, [*arguments, *places])])


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


def test_finished_runs_are_not_run_again(folder):
    result = folder / "runs/synthetic/table2/ce/seed-0/result.json"
    before = result.stat().st_mtime_ns
    assert call(folder, "table2", "--data", "synthetic", "--seeds", "2") == 0
    assert result.stat().st_mtime_ns == before


def test_rows_must_be_comparable(folder):
    study = reproduce.Study.read(folder / "recipes", "synthetic/table2")
    path = study.recipes["pauc"]
    kept = path.read_text()
    path.write_text(yaml.safe_dump({"base": "../rows.yaml", "method": "pauc", "training": {"steps": 7}}))
    with pytest.raises(RunError, match="not a fair comparison: steps differs"):
        reproduce.plan(study, 1, folder / "elsewhere")
    path.write_text(kept)


def test_an_unknown_study_names_those_there_are(folder):
    with pytest.raises(RecipeError, match="there are: synthetic/table2"):
        reproduce.Study.read(folder / "recipes", "synthetic/table3")


def test_committed_tables_are_what_their_logs_give():
    root = Path(__file__).parents[2]
    studies = reproduce.with_logs(root / "recipes/reproduce", root / "results")
    assert studies
    assert not reproduce.differences(studies, root / "results")
