"""Folders of runs that several processes want."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from mmb._atomic_files import WriteError
from mmb.cli import main
from mmb.training import Run, RunError
from mmb.training.runs.log import RunLog
from mmb.training.runs.run import data_title
from tiny_runs import small_files, tiny_recipe


def test_of_many_that_make_a_folder_one_succeeds(tmp_path):
    recipes = [tiny_recipe(optimizer={"lr": lr}) for lr in (0.1, 0.01, 0.001, 0.0001)]

    def make(recipe):
        try:
            return Run.create(tmp_path / "run", recipe)
        except RunError as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(make, recipes))
    (winner,) = [one for one in made if isinstance(one, Run)]
    assert all("mmb resume" in str(one) for one in made if one is not winner)
    assert Run.open(tmp_path / "run").recipe == winner.recipe
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["recipe.yaml"]


def test_file_systems_without_links(tmp_path, monkeypatch):
    def no_links(*names):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", no_links)
    recipe = tiny_recipe()
    assert Run.create(tmp_path / "run", recipe).recipe == Run.open(tmp_path / "run").recipe
    with pytest.raises(RunError, match="mmb resume"):
        Run.create(tmp_path / "run", recipe)


def test_a_folder_that_another_process_trains_in_is_not_discarded(tmp_path):
    run = Run.create(tmp_path / "run", tiny_recipe())
    with run.locked():
        Run.open(run.path).discard_unstarted()
        assert (run.path / "recipe.yaml").exists()
    run.discard_unstarted()
    assert not run.path.exists()


def test_a_soup_that_fails_at_once_leaves_no_folder(tmp_path):
    words = ["train", "--data", "csv", "data.path=nowhere.csv", "data.labels=a", "--method", "soup"]
    assert main([*words, "--output", str(tmp_path / "run")]) == 2
    assert not (tmp_path / "run").exists()  # so that the corrected command can be run again


def test_phases_that_have_begun_are_not_discarded(tmp_path):
    run = Run.create(tmp_path / "run", tiny_recipe("soup"))
    for path in ("pretrain", "branches/ce", "branches/auc"):
        Run.create(run.path / path, tiny_recipe("ce"))
    (run.path / "branches/ce/checkpoints").mkdir()
    run.discard_unstarted()
    assert {path.name for path in (run.path / "branches").iterdir()} == {"ce"}
    assert (run.path / "recipe.yaml").exists()


def test_commands_can_be_given_as_they_are_shown(tmp_path):
    run = Run.create(tmp_path / "my run", tiny_recipe())
    with pytest.raises(RunError, match=f"`mmb resume '{run.path}'`"):
        run.result()


def test_a_recipe_that_cannot_be_read_says_what_to_do(tmp_path):
    run = Run.create(tmp_path / "run", tiny_recipe())
    (run.path / "recipe.yaml").write_text("method: [ce")
    with pytest.raises(RunError, match=r"correct .*recipe\.yaml"):
        Run.open(run.path)


def test_a_file_is_no_run(tmp_path):
    (tmp_path / "file").touch()
    for name in ("file", "nothing"):
        with pytest.raises(RunError, match="no run"):
            Run.open(tmp_path / name)
        assert not Run(tmp_path / name, tiny_recipe()).finished


def test_a_log_that_cannot_be_written_is_named(tmp_path):
    with (
        small_files(4),
        pytest.raises(WriteError, match=r"metrics\.jsonl: File too large"),
        RunLog(tmp_path, 0, 0, tensorboard=False) as log,
    ):
        log.write("train", 1, {"loss": 0.5})


def test_runs_on_tables_are_called_like_the_file():
    assert data_title({"name": "digits"}) == "digits"
    assert data_title({"name": "table", "path": "/data/my patients.csv.gz"}) == "my patients"
    assert data_title({"name": "table", "path": "."}) == "table"
    assert data_title({"name": "mine.data:load", "path": "a.csv"}) == "mine.data:load"
