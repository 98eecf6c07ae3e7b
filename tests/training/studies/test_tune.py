"""Tuning: to the number of trials asked for, over stops, kills and processes; validation alone decides."""

import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from mmb.training import (
    METHODS,
    RecipeError,
    Run,
    RunError,
    TrainingError,
    Watch,
    read_recipe,
    resolve,
    train,
)
from mmb.training.recipes.tuning_grids import GRIDS, grid_of
from mmb.training.runs.log import read_log
from mmb.training.studies.tune import Study, check_grid, with_values
from tiny_runs import small_files, tiny_recipe

GRID = {"optimizer.lr": [1e-9, 0.003, 0.03], "objective.lr_dual objective.lr_threshold": [0.5, 0.1, 0.01]}


def recipe(**changes):
    quick = {"steps": 20, "evaluate_every": 5, "checkpoint_every": 20, **changes.pop("training", {})}
    return tiny_recipe("pauc", **{"grid": GRID, "training": quick, **changes})


def outcomes(study):
    return [(record["state"], record["value"], record["params"]) for record in study.trials()]


def combinations(study):
    return {json.dumps(record["params"]) for record in study.trials()}


def work(folder, recipe, trials):
    Study(folder, recipe).run(trials)


@pytest.fixture
def start():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mmb.training.studies.tune", "optuna", "torch._dynamo", "jsonargparse"])

    def start(*arguments):
        process = context.Process(target=work, args=arguments)
        process.start()
        return process

    return start


def test_four_trials_then_six_are_six_at_once_and_the_best_recipe_trains(tmp_path):
    study = Study(tmp_path / "study", recipe())
    study.run(4)
    assert len(study.trials()) == 4
    study = Study(tmp_path / "study", recipe())
    study.run(6)
    study.run(6)  # nothing left to do
    assert len(combinations(study)) == len(study.trials()) == 6
    for record in study.trials():
        run = Run.open(record["folder"])
        assert with_values(run.recipe, record["params"]) == run.recipe
        if record["state"] == "complete":
            assert record["value"] == run.result()["valid"]["pauc"]
            assert "test" not in run.result()  # those rows stay unseen
    at_once = Study(tmp_path / "at_once", recipe())
    at_once.run(6)
    assert outcomes(at_once) == outcomes(study)

    best = study.best()
    values = [record["value"] for record in study.trials() if record["state"] == "complete"]
    assert best["value"] == max(values) > min(values)
    written = resolve(read_recipe(tmp_path / "study" / "best.yaml"))
    assert replace(written, note="", grid=GRID) == with_values(recipe(), best["params"])
    again = train(Run.create(tmp_path / "best", written))
    assert again["valid"]["pauc"] == best["value"]


def test_two_processes_reach_the_total_without_duplicates(tmp_path, start):
    processes = [start(tmp_path, recipe(), 6) for _ in range(2)]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    study = Study(tmp_path, recipe())
    assert len(combinations(study)) == len(study.trials()) == 6
    assert {state for state, _, _ in outcomes(study)} <= {"complete", "pruned"}
    assert [record["number"] for record in study.trials()] == list(range(6))
    with sqlite3.connect(tmp_path / "study.db") as database:
        assert database.execute("select count(*) from trials").fetchone() == (6,)


def test_a_killed_trial_is_continued_where_it_was(tmp_path, start):
    long = recipe(
        training={"steps": 400, "evaluate_every": 40, "checkpoint_every": 40},
        grid={"optimizer.lr": [0.003, 0.03]},
    )
    process = start(tmp_path / "killed", long, 2)
    checkpoints = tmp_path / "killed" / "trial-0000" / "checkpoints"
    deadline = time.monotonic() + 30
    while not (checkpoints / "00000040").exists() and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    study = Study(tmp_path / "killed", long)
    assert [state for state, _, _ in outcomes(study)] == ["running"]

    first = []

    class Remember(Watch):
        def begin(self, run, step, steps):
            first.append((run.path.name, step))

    study.run(2, Remember())
    assert first[0][0] == "trial-0000"
    assert first[0][1] >= 40
    assert first[1] == ("trial-0001", 0)
    undisturbed = Study(tmp_path / "undisturbed", long)
    undisturbed.run(2)
    assert outcomes(study) == outcomes(undisturbed)


def test_an_interrupt_ends_the_work_and_keeps_the_trial(tmp_path):
    class Interrupt(Watch):
        def evaluated(self, step, valid):
            if step == 10:
                raise KeyboardInterrupt

    study = Study(tmp_path, recipe())
    with pytest.raises(KeyboardInterrupt):
        study.run(2, Interrupt())
    assert [state for state, _, _ in outcomes(study)] == ["running"]
    study.run(2)
    assert [state for state, _, _ in outcomes(study)] == ["complete", "complete"]


def test_bad_trials_are_pruned_and_their_runs_can_go_on(tmp_path):
    # Of nine combinations three do not learn; with five complete ones, the median is known.
    learning = {"data": {"rows": 1500, "noise": 0.1}, "training": {"steps": 60, "evaluate_every": 10}}
    study = Study(tmp_path, recipe(**learning))
    study.run(9)
    pruned = [record for record in study.trials() if record["state"] == "pruned"]
    assert pruned
    assert all(record["number"] >= 5 for record in pruned)
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


def test_a_diverged_trial_fails_and_the_study_goes_on(tmp_path):
    said = []

    class Listen(Watch):
        def say(self, message):
            said.append(message)

    study = Study(tmp_path / "some", recipe(grid={"optimizer.lr": [1e30, 0.003, 0.03]}))
    study.run(3, Listen())
    failed = [record for record in study.trials() if record["state"] == "fail"]
    assert [record["params"]["optimizer.lr"] for record in failed] == [1e30]
    assert "lower optimizer.lr" in failed[0]["error"]
    assert said == [f"trial {failed[0]['number']} failed: {failed[0]['error']}"]
    assert study.best()["params"]["optimizer.lr"] < 1

    study = Study(tmp_path / "all", recipe(grid={"optimizer.lr": [1e30]}))
    with pytest.raises(TrainingError, match=r"all 1 trials failed; the last: .*lower optimizer\.lr"):
        study.run(1)
    assert not (tmp_path / "all" / "best.yaml").exists()


def test_the_first_phase_is_trained_once_for_all_trials(tmp_path):
    phase = {"method": "ce", "training": {"steps": 10, "evaluate_every": 5}}
    two = recipe(pretrain=phase, grid={"optimizer.lr": [0.003, 0.03]})
    study = Study(tmp_path / "study", two)
    study.run(2)
    (shared,) = (tmp_path / "study").glob("pretrain-*")
    for record in study.trials():
        assert Run.open(record["folder"]).recipe.init_from == str(shared)
    written = resolve(read_recipe(tmp_path / "study" / "best.yaml"))
    assert written.pretrain == two.pretrain  # it stands by itself
    assert train(Run.create(tmp_path / "best", written))["valid"]["pauc"] == study.best()["value"]


def test_lists_are_values_too(tmp_path):
    study = Study(tmp_path, recipe(grid={"model.hidden": [[4], [8, 4]]}))
    study.run(2)
    assert sorted(record["params"]["model.hidden"] for record in study.trials()) == [[4], [8, 4]]
    assert resolve(read_recipe(tmp_path / "best.yaml")).model["hidden"] in ([4], [8, 4])


@pytest.mark.parametrize("name", ["a%41b", "q?x=1", "h#1", "two words"])
def test_any_folder_will_do(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Study(Path(name), recipe()).run(1)
    assert (tmp_path / name / "study.db").exists()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert len(Study(tmp_path / name, recipe()).trials()) == 1


def test_a_damaged_database_can_be_made_anew_from_the_trials(tmp_path):
    study = Study(tmp_path / "s", recipe())
    study.run(2)
    before = outcomes(study)
    database = tmp_path / "s" / "study.db"
    database.write_bytes(b"x" * 5000)
    with pytest.raises(RunError, match=r"study\.db cannot be read .* remove it"):
        Study(tmp_path / "s", recipe())
    database.unlink()
    times = [path.stat().st_mtime for path in sorted((tmp_path / "s").glob("trial-*/result.json"))]
    again = Study(tmp_path / "s", recipe())
    again.run(2)
    assert outcomes(again) == before
    assert [path.stat().st_mtime for path in sorted((tmp_path / "s").glob("trial-*/result.json"))] == times


def test_a_folder_of_other_values_is_not_taken_for_a_trial(tmp_path):
    for changes in ({"optimizer": {"lr": 0.5}}, {"objective": {"lr_dual": 0.5, "lr_threshold": 0.1}}):
        Run.create(tmp_path / "s" / "trial-0000", with_values(recipe(**changes), {}).untested())
        with pytest.raises(RunError, match="trial-0000 has a run of other values than trial 0"):
            Study(tmp_path / "s", recipe()).run(2)
        shutil.rmtree(tmp_path / "s")


def test_a_lost_database_is_made_anew_whatever_the_order_of_the_trials(tmp_path):
    study = Study(tmp_path / "s", recipe())
    study.run(3)
    before = outcomes(study)
    (tmp_path / "s" / "study.db").unlink()
    paths = [tmp_path / "s" / f"trial-{number:04d}" for number in range(3)]
    for path, name in zip(paths, "abc", strict=True):
        path.rename(tmp_path / "s" / name)
    for path, name in zip(paths, "cab", strict=True):
        (tmp_path / "s" / name).rename(path)
    again = Study(tmp_path / "s", recipe())
    again.run(3)
    assert outcomes(again) == [before[2], before[0], before[1]]


def test_a_full_disk_is_not_taken_for_a_damaged_database(tmp_path):
    with small_files(8192), pytest.raises(RunError, match=r"cannot write .*study\.db .*: free some space"):
        Study(tmp_path / "new", recipe())
    study = Study(tmp_path / "s", recipe())
    with small_files(8192), pytest.raises(RunError, match=r"cannot write .*study\.db .*: free some space"):
        study.run(1)


def test_a_database_in_use_is_not_taken_for_a_damaged_one(tmp_path, monkeypatch):
    Study(tmp_path, recipe())
    connect = sqlite3.connect
    monkeypatch.setattr(
        "mmb.training.studies.tune.sqlite3.connect", lambda *a, **k: connect(*a, **{**k, "timeout": 0.1})
    )
    with connect(tmp_path / "study.db") as other:
        other.execute("begin exclusive")
        with pytest.raises(
            RunError, match=r"locked\): see that no other program holds it, and give the same"
        ):
            Study(tmp_path, recipe())


def test_what_cannot_be_tuned_is_refused_before_anything_is_written(tmp_path):
    folder = tmp_path / "study"
    with pytest.raises(RecipeError, match=r"optimizer\.lr"):
        Study(folder, recipe(grid={"optimizer.lr": [0.1, "fast"]}))
    with pytest.raises(RecipeError, match="list of values"):
        Study(folder, recipe(grid={"optimizer.lr": []}))
    assert not folder.exists()
    Study(folder, recipe())
    with pytest.raises(RunError, match="another recipe"):
        Study(folder, recipe(seed=1))


@pytest.mark.parametrize("method", METHODS)
def test_without_a_grid_the_papers_is_used(method):
    bare = tiny_recipe(method, optimizer={"name": "momentum"})
    assert not bare.grid
    grid = grid_of(bare)
    assert check_grid(replace(bare, grid=grid)).keys() == grid.keys()  # every value is accepted
    found = list((Path(__file__).parents[3] / "recipes" / "paper").glob(f"table*/method-{method}.yaml"))
    for path in found:
        assert grid == read_recipe(path)["grid"]
    assert found or method in ("auc-ct-heads", "pauc-full", "pauc-pairwise", "sopa")
    assert "optimizer.momentum" not in grid_of(tiny_recipe(method))  # Adam has none
    assert set(GRIDS) <= set(METHODS)
