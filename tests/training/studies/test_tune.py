"""Tuning: to the number of trials asked for, over stops, kills and processes; validation alone decides."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from mmb._atomic_files import WriteError
from mmb.training import (
    METHODS,
    Observer,
    RecipeError,
    Run,
    RunError,
    TrainingError,
    TuningStudy,
    read_recipe,
    resolve,
    train,
)
from mmb.training.processes.rendezvous import ProcessError
from mmb.training.recipes.presets import GRIDS, grid_of
from mmb.training.runs.log import read_log
from mmb.training.studies import tune
from mmb.training.studies.grid import check_grid, with_values
from processes import fork_server
from tiny_runs import small_files, tiny_recipe, wait_until
from worker_tasks import HereWorkers

GRID = {"optimizer.lr": [1e-9, 0.003, 0.03], "objective.lr_dual objective.lr_threshold": [0.5, 0.1, 0.01]}


def recipe(**changes):
    quick = {"steps": 20, "evaluate_every": 5, "checkpoint_every": 20, **changes.pop("training", {})}
    return tiny_recipe("pauc", **{"grid": GRID, "training": quick, **changes})


def outcomes(study):
    return [(record["state"], record["value"], record["params"]) for record in study.trials()]


def combinations(study):
    return {json.dumps(record["params"]) for record in study.trials()}


def test_two_trials_then_four_are_four_at_once_and_the_best_recipe_trains(tmp_path):
    study = TuningStudy(tmp_path / "study", recipe())
    study.run(2)
    assert len(study.trials()) == 2
    study = TuningStudy(tmp_path / "study", recipe())
    study.run(4)
    study.run(4)  # nothing left to do
    assert len(combinations(study)) == len(study.trials()) == 4
    for record in study.trials():
        run = Run.open(record["folder"])
        assert with_values(run.recipe, record["params"]) == run.recipe
        if record["state"] == "complete":
            assert record["value"] == run.result()["valid"]["pauc"]
            assert "test" not in run.result()  # those rows stay unseen
    at_once = TuningStudy(tmp_path / "at_once", recipe())
    at_once.run(4)
    assert outcomes(at_once) == outcomes(study)

    best = study.best()
    values = [record["value"] for record in study.trials() if record["state"] == "complete"]
    assert best["value"] == max(values) > min(values)
    written = resolve(read_recipe(tmp_path / "study" / "best.yaml"))
    assert replace(written, note="", grid=GRID) == with_values(recipe(), best["params"])
    again = train(Run.create(tmp_path / "best", written))
    assert again["valid"]["pauc"] == best["value"]


@pytest.fixture
def quick(monkeypatch):
    """Trials of which nothing is trained: their value is their step size. Returns the folders of the runs."""
    paths = []

    def train(run, observer):
        paths.append(run.path)
        lr = run.recipe.optimizer.lr
        if lr > 1:
            raise TrainingError("lower optimizer.lr")
        return {"valid": {"pauc": lr}}

    monkeypatch.setattr(tune, "train", train)
    return paths


def test_many_workers_reach_the_total_without_duplicates(tmp_path, quick):
    def work(_):
        TuningStudy(tmp_path, recipe()).run(7)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    study = TuningStudy(tmp_path, recipe())
    assert len(combinations(study)) == len(study.trials()) == len(quick) == 7
    assert {state for state, _, _ in outcomes(study)} == {"complete"}


def test_jobs_are_processes_that_work_on_the_same_study(tmp_path, quick, monkeypatch):
    started = []

    class Counted(HereWorkers):
        def start(self, task):
            started.append(task)
            super().start(task)

    monkeypatch.setattr(tune, "Workers", Counted)
    study = TuningStudy(tmp_path, recipe())
    study.run(3, jobs=2)
    assert started == [3, 3]
    assert len(study.trials()) == 3
    monkeypatch.setattr(tune, "_work_on", lambda *_: ProcessError("exit code -9"))
    with pytest.raises(RunError, match="exit code -9"):
        study.run(4, jobs=2)


def test_a_killed_trial_is_continued_where_it_was(tmp_path):
    long = recipe(
        training={"steps": 400, "evaluate_every": 40, "checkpoint_every": 40},
        grid={"optimizer.lr": [0.003, 0.03]},
    )
    process = fork_server().Process(target=tune._work_on, args=(tmp_path / "killed", long, 2))
    process.start()
    wait_until(lambda: any((tmp_path / "killed").glob("trial-*/checkpoints/00000040")))
    process.kill()
    process.join()
    study = TuningStudy(tmp_path / "killed", long)
    assert [state for state, _, _ in outcomes(study)] == ["running"]

    first = []

    class Remember(Observer):
        def begin(self, run, step, steps):
            first.append((run.path, step))

    study.run(2, Remember())
    paths = [Path(record["folder"]) for record in study.trials()]
    assert [path for path, _ in first] == paths
    assert first[0][1] >= 40
    assert first[1][1] == 0
    undisturbed = TuningStudy(tmp_path / "undisturbed", long)
    undisturbed.run(2)
    assert outcomes(study) == outcomes(undisturbed)


def test_a_trial_that_waits_is_taken_before_a_new_one(tmp_path, quick):
    study = TuningStudy(tmp_path, recipe())
    states = study._states
    waiting = study._optuna.trial.create_trial(
        state=states.WAITING, params=study._grid.places(7), distributions=study._space
    )
    study._study.add_trial(waiting)  # and here its process died
    assert [(record["number"], record["state"]) for record in study.trials()] == [(7, "waiting")]
    study.run(1)
    assert [path.name for path in quick] == ["trial-0007"]
    assert [state for state, _, _ in outcomes(study)] == ["complete"]


def test_only_the_trials_of_dead_processes_wait_again(tmp_path, quick):
    study, other = TuningStudy(tmp_path, recipe()), TuningStudy(tmp_path, recipe())
    asked, lock = other._ask(2)
    with lock:
        study.run(2)
        assert len(quick) == 1  # the other trial is being run
        assert study._path(asked.params) not in quick
    study.run(2)
    assert len(quick) == 2
    assert [state for state, _, _ in outcomes(study)] == ["complete", "complete"]


def test_an_interrupt_ends_the_work_and_keeps_the_trial(tmp_path):
    class Interrupt(Observer):
        def evaluated(self, step, valid):
            if step == 10:
                raise KeyboardInterrupt

    study = TuningStudy(tmp_path, recipe())
    with pytest.raises(KeyboardInterrupt):
        study.run(2, Interrupt())
    assert [state for state, _, _ in outcomes(study)] == ["running"]
    study.run(2)
    assert [state for state, _, _ in outcomes(study)] == ["complete", "complete"]


def test_less_is_better_with_some_metrics(tmp_path):
    study = TuningStudy(
        tmp_path, recipe(training={"select": "log_loss"}, grid={"optimizer.lr": [1e-9, 0.01, 0.1]})
    )
    study.run(3)
    values = {record["number"]: record["value"] for record in study.trials() if record["state"] == "complete"}
    assert len(values) == 3
    assert study.best()["value"] == min(values.values()) < max(values.values())
    assert [record["value"] for record in study.ranked()] == sorted(values.values())
    assert f"log_loss {min(values.values()):.6f}" in read_recipe(tmp_path / "best.yaml")["note"]


def test_bad_trials_are_pruned_and_their_runs_can_go_on(tmp_path):
    # Of nine combinations three do not learn; with five complete ones, the median is known.
    learning = {"data": {"rows": 1500, "noise": 0.1}, "training": {"steps": 60, "evaluate_every": 10}}
    study = TuningStudy(tmp_path, recipe(**learning))
    study.run(9)
    pruned = [record for record in study.trials() if record["state"] == "pruned"]
    assert pruned
    assert {record["state"] for record in study.trials()[:5]} == {"complete"}
    for record in pruned:
        run = Run.open(record["folder"])
        evaluated = [line["step"] for line in read_log(run.path) if line["kind"] == "valid"]
        assert 15 <= evaluated[-1] < 60  # not in the first quarter, nor when all is done
        assert not run.finished
    run = Run.open(pruned[0]["folder"])
    whole = train(Run.create(tmp_path / "whole", run.recipe))
    assert train(run)["valid"] == whole["valid"]
    study.run(20)  # the grid has nine combinations
    assert len(study.trials()) == 9


def test_a_diverged_trial_fails_and_the_study_goes_on(tmp_path, quick):
    said = []

    class Listen(Observer):
        def say(self, message):
            said.append(message)

    study = TuningStudy(tmp_path / "some", recipe(grid={"optimizer.lr": [1e30, 0.003, 0.03]}))
    study.run(3, Listen())
    failed = [record for record in study.trials() if record["state"] == "fail"]
    assert [record["params"]["optimizer.lr"] for record in failed] == [1e30]
    assert "optimizer.lr" in failed[0]["error"]
    assert said == [f"trial {failed[0]['number']} failed: {failed[0]['error']}"]
    assert study.best()["params"]["optimizer.lr"] < 1

    study = TuningStudy(tmp_path / "all", recipe(grid={"optimizer.lr": [1e30]}))
    with pytest.raises(TrainingError, match=r"all 1 trials.*optimizer\.lr"):
        study.run(1)
    assert not (tmp_path / "all" / "best.yaml").exists()


def test_the_first_phase_is_trained_once_for_all_trials(tmp_path):
    phase = {"method": "ce", "training": {"steps": 10, "evaluate_every": 5}}
    two = recipe(pretrain=phase, grid={"optimizer.lr": [0.003, 0.03]})
    study = TuningStudy(tmp_path / "study", two)
    study.run(2)
    (shared,) = (tmp_path / "study").glob("pretrain-*")
    for record in study.trials():
        assert Run.open(record["folder"]).recipe.init_from == str(shared)
    written = resolve(read_recipe(tmp_path / "study" / "best.yaml"))
    assert written.pretrain == two.pretrain  # it stands by itself
    assert train(Run.create(tmp_path / "best", written))["valid"]["pauc"] == study.best()["value"]


def test_lists_are_values_too(tmp_path, quick):
    study = TuningStudy(tmp_path, recipe(grid={"model.hidden": [[4], [8, 4]]}))
    study.run(2)
    assert sorted(record["params"]["model.hidden"] for record in study.trials()) == [[4], [8, 4]]
    assert resolve(read_recipe(tmp_path / "best.yaml")).model["hidden"] in ([4], [8, 4])


def test_any_folder_will_do(tmp_path, monkeypatch, quick):
    monkeypatch.chdir(tmp_path)
    name = "a%41b q?x=1 h#1"
    TuningStudy(Path(name), recipe()).run(1)
    assert (tmp_path / name / "study.journal").exists()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert len(TuningStudy(tmp_path / name, recipe()).trials()) == 1


def test_a_damaged_journal_can_be_made_again_from_the_trials(tmp_path, quick):
    study = TuningStudy(tmp_path, recipe(grid={"optimizer.lr": [0.001, 0.003, 0.01, 0.03, 0.1]}))
    study.run(2)
    before = outcomes(study)
    journal = tmp_path / "study.journal"
    first, *rest = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([first, b"x", *rest]))
    with pytest.raises(RunError, match=r"study\.journal.*move it"):
        TuningStudy(tmp_path, study.recipe)
    journal.unlink()
    again = TuningStudy(tmp_path, study.recipe)
    again.run(2)
    assert sorted(outcomes(again), key=str) == sorted(before, key=str)
    assert len(list(tmp_path.glob("trial-*"))) == 2


def test_a_value_that_was_changed_in_the_journal_is_noticed(tmp_path):
    study = TuningStudy(tmp_path, recipe(grid={"optimizer.lr": [0.003, 0.03]}))
    study.run(2)
    worse = min(record["value"] for record in study.trials())
    journal = tmp_path / "study.journal"
    text = journal.read_text()
    assert f'"values":[{worse}]' in text
    journal.write_text(text.replace(f'"values":[{worse}]', '"values":[1.5]'))
    with pytest.raises(RunError, match=r"study\.journal.*damaged.*1\.5.*move it"):
        TuningStudy(tmp_path, study.recipe).run(2)


def test_a_journal_that_a_crash_cut_off_is_mended(tmp_path, quick):
    study = TuningStudy(tmp_path, recipe())
    study.run(2)
    journal = tmp_path / "study.journal"
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-10])  # that the last trial is complete
    study = TuningStudy(tmp_path, recipe())
    assert [state for state, _, _ in outcomes(study)] == ["complete", "running"]
    study.run(3)
    assert [state for state, _, _ in outcomes(study)] == ["complete"] * 3
    assert len(combinations(study)) == 3


def test_a_folder_of_other_values_is_not_taken_for_a_trial(tmp_path):
    other = with_values(recipe(optimizer={"lr": 0.5}), {}).untested()
    Run.create(tmp_path / "s" / "trial-0000", other)
    with pytest.raises(RunError, match=r"trial-0000.*move"):
        TuningStudy(tmp_path / "s", recipe()).run(1)


def test_a_full_disk_is_not_taken_for_a_damaged_journal(tmp_path):
    with small_files(100), pytest.raises(WriteError, match=r"study\.journal"):
        TuningStudy(tmp_path / "new", recipe())
    study = TuningStudy(tmp_path / "s", recipe())
    size = (tmp_path / "s" / "study.journal").stat().st_size
    with small_files(size + 10), pytest.raises(WriteError, match=r"study\.journal"):
        study.run(1)


def test_what_cannot_be_tuned_is_refused_before_anything_is_written(tmp_path):
    folder = tmp_path / "study"
    with pytest.raises(RecipeError, match=r"optimizer\.lr"):
        TuningStudy(folder, recipe(grid={"optimizer.lr": [0.1, "fast"]}))
    with pytest.raises(RecipeError, match="list of values"):
        TuningStudy(folder, recipe(grid={"optimizer.lr": []}))
    assert not folder.exists()
    TuningStudy(folder, recipe())
    with pytest.raises(RunError, match="another recipe"):
        TuningStudy(folder, recipe(seed=1))


@pytest.mark.parametrize("method", [name for name in METHODS if "branches" not in METHODS[name].defaults])
def test_without_a_grid_the_papers_is_used(method):
    bare = tiny_recipe(method, optimizer={"name": "momentum"})
    assert not bare.grid
    grid = grid_of(bare)
    assert check_grid(replace(bare, grid=grid)).keys() == grid.keys()  # every value is accepted
    assert "optimizer.momentum" not in grid_of(tiny_recipe(method))  # Adam has none
    assert set(GRIDS) <= set(METHODS)


def test_branches_are_not_tuned_together(tmp_path):
    soup = replace(tiny_recipe("soup"), grid={"optimizer.lr": [0.1, 0.2]})
    with pytest.raises(RecipeError, match=r"soup has branches.*tune the method of a branch"):
        TuningStudy(tmp_path / "study", soup)
    assert not (tmp_path / "study").exists()
