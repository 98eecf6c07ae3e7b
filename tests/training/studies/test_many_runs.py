"""Many runs: first phases first, a failure is named and stops only the runs that depend on it."""

import pytest

from mmb.training import PlannedRun, Run, RunError, TableStudy, TrainingError, plan_table, train_many
from mmb.training.processes.rendezvous import ProcessError
from mmb.training.runs import checkpoint
from mmb.training.studies import many_runs
from mmb.training.studies.many_runs import RunQueue, share_done
from processes import quick_workers
from small_studies import call, write_study
from tiny_runs import tiny_recipe
from worker_tasks import HereWorkers

DIVERGES = {"optimizer": {"name": "sgd", "lr": 1e30}}
ROWS = ["synthetic/table2/ce/seed-0", "synthetic/table2/pauc/seed-0"]


def planned_in(folder, seeds=1, **about):
    study = TableStudy.read(write_study(folder, **about) / "recipes", "synthetic/table2")
    return plan_table(study, seeds, folder / "runs", folder)


@pytest.fixture
def trained(monkeypatch):
    """Names of the runs that were given to processes, which are finished at once."""
    names = []

    def finish(one, at_once, only_best):
        names.append(one.name)
        (one.run.path / "result.json").write_text("{}")

    monkeypatch.setattr(many_runs, "Workers", HereWorkers)
    monkeypatch.setattr(many_runs, "_train", finish)
    return names


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_study(tmp_path_factory.mktemp("jobs"), changes={"ce": DIVERGES})
    with quick_workers():
        code = call(folder, "table2", "--seeds", "1", "--jobs", "2")
    return folder, code


def test_a_failed_run_is_named_and_the_others_go_on(folder, capsys):
    folder, code = folder
    assert code == 1
    assert not (folder / "results" / ROWS[0] / "result.json").exists()
    assert (folder / "results" / ROWS[1] / "result.json").exists()
    assert "MMB-pAUC" in (folder / "results/README.md").read_text()
    assert "Traceback" in (folder / "runs" / ROWS[0] / "error.txt").read_text()
    assert call(folder, "table2", "--seeds", "1") == 1  # here: only what is not finished
    message = capsys.readouterr().err
    assert "1 of 3 runs failed" in message
    assert f"{ROWS[0]}: TrainingError: " in message
    assert "Traceback" in (folder / "runs" / ROWS[0] / "error.txt").read_text()


def test_that_runs_shared_the_machine_is_said(folder):
    folder, _ = folder
    assert Run.open(folder / "results" / ROWS[1]).result()["at_once"] == 2
    assert "up to 2 runs sharing the device" in (folder / "results/README.md").read_text()


def test_runs_of_a_table_keep_their_selected_weights_only(folder):
    run = Run.open(folder[0] / "runs" / ROWS[1])
    assert checkpoint.steps(run.checkpoints) == [run.best_checkpoint()]


def test_nothing_starts_from_a_first_phase_that_failed(tmp_path):
    ended = []
    failed = train_many(
        planned_in(tmp_path, start=DIVERGES), ended=lambda one, error: ended.append((one.name, error))
    )
    start = "synthetic/start/seed-0"
    assert dict(ended) == failed
    assert [name for name, _ in ended] == [start, *ROWS]
    assert isinstance(failed[start], TrainingError)
    assert all(isinstance(failed[row], RunError) and start in str(failed[row]) for row in ROWS)


def test_by_default_the_first_failure_is_raised(tmp_path):
    runs = [
        PlannedRun(name, Run.create(tmp_path / name, tiny_recipe("ce", **changes)))
        for name, changes in {"a": DIVERGES, "b": {}}.items()
    ]
    with pytest.raises(TrainingError, match=r"optimizer\.lr"):
        train_many(runs)
    assert not runs[1].run.finished
    assert not (runs[1].run.path / "metrics.jsonl").exists()


def test_first_phases_go_first(tmp_path, trained):
    """With several jobs; one at a time, seed by seed."""
    planned = planned_in(tmp_path, seeds=2)
    starts = ["synthetic/start/seed-0", "synthetic/start/seed-1"]
    others = [row.replace("seed-0", seed) for seed in ("seed-0", "seed-1") for row in ROWS]
    assert [one.name for one in planned] == [starts[0], *others[:2], starts[1], *others[2:]]
    queue = RunQueue(planned)
    queue.prefer_long()
    assert [queue.take().name, queue.take().name] == starts
    assert queue.take() is None  # the rest must wait
    moved = []
    assert train_many(planned, 3, moved=moved.append) == {}
    assert trained == [*starts, *others]
    assert moved[-1] == 6
    assert train_many(planned, 3) == {}  # nothing is left
    assert len(trained) == 6


def test_methods_that_compile_for_long_go_before_the_rest(tmp_path, trained):
    train_many(planned_in(tmp_path, rows=["ce", "auc-ct"], compare="steps"), 2)
    assert [name.split("/")[2] for name in trained[1:]] == ["auc-ct", "ce"]


def test_a_killed_process_is_named(tmp_path, trained, monkeypatch):
    monkeypatch.setattr(many_runs, "_train", lambda one, **_: ProcessError("exit code -9"))
    planned = planned_in(tmp_path)
    with pytest.raises(RunError, match=r"start.seed-0.*exit code -9"):
        train_many(planned, 2)
    failed = train_many(planned, 2, ended=lambda one, error: None)
    assert len(failed) == 3


def test_progress_of_a_damaged_log_is_unknown_or_known(tmp_path):
    run = Run.create(tmp_path / "run", tiny_recipe())
    lines = '{"kind": "start", "step": 0, "steps": 40}\n{"kind": "train", "step": 8}\n'
    (run.path / "metrics.jsonl").write_text(f"x{lines}")
    assert share_done(run) == 0
    (run.path / "metrics.jsonl").write_text(lines)
    assert share_done(run) == 0.2
