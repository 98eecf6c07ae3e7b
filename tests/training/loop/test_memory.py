"""Memory of block state in a run: told before training, refused before it is taken; copies read ahead."""

import pytest

from mmb import memory
from mmb.memory import NoRoomError
from mmb.training import Run, train
from mmb.training.loop.observer import Observer
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.setup import make_setup
from mmb.training.recipes.resolution import resolve, to_plain
from mmb.training.runs.log import read_log
from tiny_runs import tiny_recipe

# mlp 8 -> 8 -> 4 tasks: a copy has 8 * 8 + 8 + 8 + 1 = 81 weights
COPIES = "4 weight copies of 81 weights in bfloat16 on cpu: 648 bytes"


class Notes(Observer):
    def __init__(self):
        self.notes = []

    def note(self, message):
        self.notes.append(message)


def compositional(**options):
    training = {"steps": 12, "evaluate_every": 6}
    return tiny_recipe("auc-ct", objective={"lr_dual": 0.1, **options}, training=training)


def test_told_before_training_and_logged(tmp_path):
    observer = Notes()
    run = Run.create(tmp_path / "run", compositional(copies_dtype="bfloat16", copies_device="cpu"))
    train(run, observer)
    assert len(observer.notes) == 1
    assert observer.notes[0].startswith(f"{COPIES} per process; ")
    assert read_log(run.path)[0]["block_bytes"] == 648 + 3 * 4 * 4  # dual and two means


def test_objectives_without_copies_tell_in_the_log_alone(tmp_path):
    observer = Notes()
    run = Run.create(tmp_path / "run", tiny_recipe("auc", training={"steps": 4}))
    train(run, observer)
    assert observer.notes == []
    assert read_log(run.path)[0]["block_bytes"] == 3 * 4 * 4


def test_storage_of_copies_is_part_of_a_recipe():
    recipe = compositional(copies_dtype="bfloat16", copies_device="cpu")
    assert recipe.objective["copies_dtype"] == "bfloat16"
    assert resolve(to_plain(recipe)) == recipe
    with pytest.raises(ValueError, match="copies_dtype"):
        compositional(copies_dtype="bfloat15")


def test_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    run = Run.create(tmp_path / "run", compositional())
    with pytest.raises(NoRoomError, match=r"1\.3 KiB, but 1000 bytes are free there.*copies_dtype=bfloat16"):
        train(run)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # as torchrun says it
    with pytest.raises(NoRoomError, match=r"bfloat16 .* 648 bytes for each of 2 processes"):
        make_setup(compositional(copies_dtype="bfloat16"))


def test_the_next_tasks_are_told_before_each_batch_and_reading_ahead_changes_nothing(tmp_path, monkeypatch):
    recipe = compositional()
    with own_randomness(0, make_setup(recipe).dataset.device):
        setup = make_setup(recipe)
    told = []
    setup.objective.prefetch = lambda tasks: told.append(tasks.tolist())
    batches = iter(setup.feed)
    used = [next(batches).tasks.tolist() for _ in range(5)]
    assert told[:4] == used[1:]

    ahead = train(Run.create(tmp_path / "ahead", recipe))
    monkeypatch.setattr("mmb.auc.CompositionalAUC.prefetch", lambda self, tasks: None)
    plain = train(Run.create(tmp_path / "plain", recipe))
    assert {**ahead, "seconds": 0} == {**plain, "seconds": 0}
