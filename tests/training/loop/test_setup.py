"""The parts of a run; what cannot be trained is refused before anything is made."""

from copy import deepcopy

import pytest
import torch

from mmb import memory
from mmb.data import TableError
from mmb.memory import NoRoomError
from mmb.training import Run, train
from mmb.training.loop.setup import make_setup
from mmb.training.loop.step import Step
from mmb.training.recipes.resolution import resolve, to_plain
from tiny_runs import tiny_recipe


def compositional(**options):
    training = {"steps": 12, "evaluate_every": 6}
    return tiny_recipe("auc-ct", objective={"lr_dual": 0.1, **options}, training=training)


def test_storage_of_copies_is_part_of_a_recipe():
    recipe = compositional(copies_dtype="bfloat16", copies_device="cpu")
    assert recipe.objective["copies_dtype"] == "bfloat16"
    assert resolve(to_plain(recipe)) == recipe
    with pytest.raises(ValueError, match="copies_dtype"):
        compositional(copies_dtype="bfloat15")


def test_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    run = Run.create(tmp_path / "run", compositional())
    with pytest.raises(NoRoomError, match=r"1\.3 KiB.*1000 bytes.*copies_dtype=bfloat16"):
        train(run)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # as torchrun says it
    with pytest.raises(NoRoomError, match=r"bfloat16.*648 bytes.*2 processes"):
        make_setup(compositional(copies_dtype="bfloat16"))


def test_a_checkpoint_of_captured_steps_goes_on_without_and_the_other_way_round(monkeypatch):
    """As "auto" does on machines with and without a GPU."""
    recipe = tiny_recipe("ce", model={"dropout": 0.0}, training={"capture": "auto"})
    plain = make_setup(recipe)
    monkeypatch.setattr("mmb.training.loop.setup.decide_capture", lambda *_: (True, None))
    captured = make_setup(recipe)
    Step(plain)(next(iter(plain.feed)))
    rate = captured.optimizer.param_groups[0]["lr"]
    captured.load_state_dict(deepcopy(plain.state_dict()))
    assert all(group["capturable"] for group in captured.optimizer.param_groups)
    assert captured.optimizer.param_groups[0]["lr"] is rate
    monkeypatch.undo()
    other = make_setup(recipe)
    other.load_state_dict(deepcopy(captured.state_dict()))
    for setup in (plain, other):
        assert not any(group["capturable"] for group in setup.optimizer.param_groups)
        setup.set_step_sizes(1)
    batch = next(iter(plain.feed))
    losses = [Step(setup)(batch)["loss"] for setup in (plain, other)]
    assert losses[0] == losses[1]
    torch.testing.assert_close(other.model.state_dict(), plain.model.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(("labels", "found"), [("", "0 positives and 0 negatives"), ("0", "40 negatives")])
def test_labels_from_which_nothing_can_be_learned_are_refused_with_their_file(tmp_path, labels, found):
    path = tmp_path / "t.csv"
    path.write_text("x,sick\n" + "".join(f"{row},{labels}\n" for row in range(50)))
    recipe = resolve({"method": "ce", "data": {"name": "table", "path": str(path), "labels": ["sick"]}})
    with pytest.raises(TableError, match=rf"(?s)t\.csv.*sick has .*{found}.*data\.labels"):
        make_setup(recipe)
