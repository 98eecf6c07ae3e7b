"""The same recipe with several seeds."""

import json

import pytest

from mmb.cli import main
from mmb.training import RunError, train_many
from mmb.training.studies.replicates import averaged_metrics, open_runs, plan_replicates, write_ensemble
from tiny_runs import TINY

FRAGMENT = {**TINY, "method": "ce", "seed": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replicates") / "e"
    planned = plan_replicates(FRAGMENT, 3, folder)
    train_many(planned)
    write_ensemble(folder, [one.run for one in planned])
    return folder


def test_runs_differ_in_their_seed_alone(folder):
    planned = plan_replicates(FRAGMENT, 3, folder)  # found again
    assert [one.name for one in planned] == ["seed-3", "seed-4", "seed-5"]
    assert [one.run.recipe.seed for one in planned] == [3, 4, 5]
    assert len({json.dumps(dict(one.run.recipe.data)) for one in planned}) == 1
    assert all(one.run.finished for one in planned)


def test_a_folder_stands_for_its_runs(folder, tmp_path):
    assert [run.path.name for run in open_runs([folder])] == ["seed-3", "seed-4", "seed-5"]
    assert len(open_runs([folder / "seed-3", folder])) == 4
    (tmp_path / "ensemble.json").write_text("{}")
    with pytest.raises(RunError, match=r"ensemble\.json is damaged"):
        open_runs([tmp_path])


def test_the_average_of_one_run_is_that_run(folder):
    run = open_runs([folder / "seed-3"])
    found = averaged_metrics(run, "test")
    assert found == pytest.approx(run[0].result()["test"])


def test_the_average_of_one_run_twice_ranks_like_that_run(folder):
    run = open_runs([folder / "seed-3"])
    assert averaged_metrics([*run, *run], "test")["auc"] == pytest.approx(run[0].result()["test"]["auc"])


def test_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [
        "train",
        "synthetic",
        "ce",
        "data.rows=300",
        "data.tasks=2",
        "data.features=4",
        "model.hidden=[8]",
    ]
    words += ["data.positive_rate=0.2", "training.steps=10", "training.tensorboard=false"]
    assert main([*words, "--ensemble", "2", "--output", "e", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["runs"]) == ["seed-0", "seed-1"]
    assert 0 <= found["average"]["auc"] <= 1
    assert main([*words, "--replicates", "2"]) == 0
    said = capsys.readouterr().out
    assert "deviation" in said
    assert "mmb predict runs/replicates-synthetic-ce-0/seed-0" in said
    (tmp_path / "new.csv").write_text("x0,x1,x2,x3\n1,2,3,4\n")
    assert main(["predict", "e", "--input", "new.csv", "--output", "out.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == 2
    assert main([*words, "--replicates", "2", "--ensemble", "2"]) == 2
