"""Many runs at once: first phases first, a failure is named and stops only what depends on it."""

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mmb.training.loop.watch import Watch
from mmb.training.runs.run import Run, RunError
from mmb.training.studies.reproduce import Planned, Study, plan, train_all
from small_studies import call, write_study
from tiny_runs import is_free, wait_until

DIVERGES = {"optimizer": {"name": "sgd", "lr": 1e30}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_study(tmp_path_factory.mktemp("jobs"), changes={"ce": DIVERGES})
    code = call(folder, "table2", "--seeds", "1", "--jobs", "2")
    return folder, code


def test_a_failed_run_is_named_and_the_others_go_on(folder, capsys):
    folder, code = folder
    assert code == 1
    assert not (folder / "results/synthetic/table2/ce/seed-0/result.json").exists()
    assert (folder / "results/synthetic/table2/pauc/seed-0/result.json").exists()
    assert "MMB-pAUC" in (folder / "results/README.md").read_text()
    assert call(folder, "table2", "--seeds", "1") == 1  # here: only what is not finished
    message = capsys.readouterr().err
    assert "1 of 3 runs failed" in message
    assert "synthetic/table2/ce/seed-0: TrainingError: the " in message
    assert "Traceback" in (folder / "runs/synthetic/table2/ce/seed-0/error.txt").read_text()


def test_that_runs_shared_the_machine_is_said(folder):
    folder, _ = folder
    assert Run.open(folder / "results/synthetic/table2/pauc/seed-0").result()["at_once"] == 2
    assert "up to 2 runs sharing the device" in (folder / "results/README.md").read_text()


def test_nothing_starts_from_a_first_phase_that_failed(tmp_path):
    write_study(tmp_path, start=DIVERGES)
    study = Study.read(tmp_path / "recipes", "synthetic/table2")
    ended = []
    failed = train_all(
        plan(study, 1, tmp_path / "runs", tmp_path), 1, Watch(), lambda one, _: ended.append(one.name)
    )
    start, *rows = ended
    assert start == "synthetic/start/seed-0"
    assert sorted(rows) == ["synthetic/table2/ce/seed-0", "synthetic/table2/pauc/seed-0"]
    assert {failed[row] for row in rows} == {f"its first phase {start} failed"}


def test_first_phases_go_first(tmp_path, monkeypatch):
    """With many at once; one at a time, seed by seed."""
    study = Study.read(write_study(tmp_path) / "recipes", "synthetic/table2")
    planned = plan(study, 2, tmp_path / "runs", tmp_path)
    order = [one.name.removeprefix("synthetic/") for one in planned]
    assert order == [
        "start/seed-0",
        "table2/ce/seed-0",
        "table2/pauc/seed-0",
        "start/seed-1",
        "table2/ce/seed-1",
        "table2/pauc/seed-1",
    ]
    taken = []

    def take_all(queue, jobs):
        while (one := queue.take()) is not None:
            taken.append(one.name.removeprefix("synthetic/"))
        assert taken == ["start/seed-0", "start/seed-1"]  # the rest must wait
        (tmp_path / "runs/synthetic/start/seed-1/result.json").write_text("{}")
        queue.end(Planned("synthetic/start/seed-1", Run.open(tmp_path / "runs/synthetic/start/seed-1")), 0)
        while (one := queue.take()) is not None:
            taken.append(one.name.removeprefix("synthetic/"))

    monkeypatch.setattr("mmb.training.studies.reproduce.jobs._train_at_once", take_all)
    train_all(planned, 3, Watch(), lambda one, problem: None)
    assert taken[2:] == ["table2/ce/seed-1", "table2/pauc/seed-1"]


def test_what_compiles_for_long_goes_before_the_rest(tmp_path, monkeypatch):
    write_study(tmp_path, rows=["ce", "auc-ct"], compare="steps")
    taken = []

    def take_all(queue, jobs):
        start = queue.take()
        (start.run.path / "result.json").write_text("{}")
        queue.end(start, 0)
        while (one := queue.take()) is not None:
            taken.append(one.run.recipe.method)

    monkeypatch.setattr("mmb.training.studies.reproduce.jobs._train_at_once", take_all)
    study = Study.read(tmp_path / "recipes", "synthetic/table2")
    train_all(plan(study, 1, tmp_path / "runs", tmp_path), 2, Watch(), lambda one, problem: None)
    assert taken == ["auc-ct", "ce"]


def test_a_killed_process_is_named(tmp_path):
    write_study(tmp_path, start={"training": {"steps": 10**9, "evaluate_every": 10**9, "log_every": 10}})
    study = Study.read(tmp_path / "recipes", "synthetic/table2")
    planned = plan(study, 1, tmp_path / "runs", tmp_path)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(train_all, planned, 2, Watch(), lambda one, problem: None)
        wait_until(lambda: (planned[0].run.path / "metrics.jsonl").exists(), 60)
        for process in multiprocessing.active_children():
            process.kill()
        failed = found.result(30)
    assert failed.pop("synthetic/start/seed-0") == "its process ended with exit code -9"
    assert len(failed) == 2


def test_processes_end_with_the_one_that_started_them(tmp_path):
    write_study(tmp_path, start={"training": {"steps": 10**9, "evaluate_every": 10**9, "log_every": 10}})
    script = (
        f"from small_studies import call; from pathlib import Path; call(Path({str(tmp_path)!r}), 'table2', "
    )
    script = f"if __name__ == '__main__':\n    {script}'--seeds', '1', '--jobs', '2')"
    (tmp_path / "script.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    parent = subprocess.Popen([sys.executable, str(tmp_path / "script.py")], env=environment)
    start = tmp_path / "runs/synthetic/start/seed-0"
    try:
        wait_until(lambda: (start / "metrics.jsonl").exists(), 60)
        with pytest.raises(RunError, match="another process is training"), Run.open(start).locked():
            pass
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: is_free(start), 20)
