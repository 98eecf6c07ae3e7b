"""Checkpoints hold everything, are there whole or not at all, and show when they are damaged."""

import errno
import json
import resource

import pytest
import torch

from mmb.training import CheckpointError
from mmb.training.runs import checkpoint


def some_state(seed=0):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(3, 4, generator=generator)
    return {
        "weights": {"a": weight, "tied": weight, "view": weight.T},
        "optimizer": {
            "state": {0: {"step": torch.tensor(3.0)}, 7: {}},
            "groups": [{"lr": 0.1, "betas": (0.9, 1)}],
        },
        "half": torch.ones(2, dtype=torch.bfloat16),
        "generator": generator.get_state(),
        "flags": [True, None, "text", -float("inf"), torch.tensor([True, False]), torch.empty(0, 2)],
    }


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and one == other


def test_what_is_saved_is_loaded(tmp_path):
    path = checkpoint.save(tmp_path, 12, some_state())
    assert path.name == "00000012"
    assert sorted(p.name for p in path.iterdir()) == ["manifest.json", "state.json", "tensors.safetensors"]
    assert same(checkpoint.load(path), some_state())


def test_what_cannot_be_saved_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"state\.model\.thing.*object"):
        checkpoint.save(tmp_path, 0, {"model": {"thing": object()}})


def flip_a_bit(path):
    content = bytearray((path / "tensors.safetensors").read_bytes())
    content[-1] ^= 1
    (path / "tensors.safetensors").write_bytes(content)


DAMAGES = {
    "bit": flip_a_bit,
    "cut tensors": lambda path: (path / "tensors.safetensors").write_bytes(b"short"),
    "no tensors": lambda path: (path / "tensors.safetensors").unlink(),
    "state": lambda path: (path / "state.json").write_text("{}"),
    "manifest": lambda path: (path / "manifest.json").write_text("{not json"),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "empty manifest": lambda path: (path / "manifest.json").write_text("[]"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_checkpoint_is_passed_over_and_named(tmp_path, damage):
    checkpoint.save(tmp_path, 10, some_state(1))
    newest = checkpoint.save(tmp_path, 20, some_state(2))
    damage(newest)
    with pytest.raises(CheckpointError, match=r"00000020.*damaged"):
        checkpoint.load(newest)
    said = []
    assert same(checkpoint.load_newest(tmp_path, said.append), some_state(1))
    assert len(said) == 1
    assert "00000020" in said[0]


def test_all_damaged_is_an_error_and_none_is_none(tmp_path):
    assert checkpoint.load_newest(tmp_path, pytest.fail) is None
    flip_a_bit(checkpoint.save(tmp_path, 1, some_state()))
    with pytest.raises(CheckpointError, match="all 1 "):
        checkpoint.load_newest(tmp_path, lambda message: None)


def test_disk_full_leaves_the_last_checkpoint_intact(tmp_path):
    checkpoint.save(tmp_path, 1, some_state())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # no file can grow beyond 1,000 bytes
    try:
        with pytest.raises(CheckpointError, match=r"step 2.*mmb resume"):
            checkpoint.save(tmp_path, 2, some_state())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["00000001"]
    assert same(checkpoint.load_newest(tmp_path, pytest.fail), some_state())


@pytest.mark.parametrize("failing", ["sync", "write_whole"])
def test_no_space_at_any_point_of_writing(tmp_path, monkeypatch, failing):
    checkpoint.save(tmp_path, 1, some_state())

    def fail(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, failing, fail)
    with pytest.raises(CheckpointError, match="No space left on device"):
        checkpoint.save(tmp_path, 2, some_state())
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["00000001"]
    assert same(checkpoint.load_newest(tmp_path, pytest.fail), some_state())


def test_the_newest_and_the_best_they_know_are_kept(tmp_path):
    best = {1: 1, 2: 2, 3: 2, 4: 2, 5: 5, 6: 5}
    for step, best_step in best.items():
        checkpoint.save(tmp_path, step, {"step": step}, best_step)
        checkpoint.prune(tmp_path, keep=2, step=step)
        kept = {int(path.name) for path in checkpoint.steps(tmp_path)}
        newest = [s for s in best if s <= step][-2:]
        assert kept == {*newest, *(best[s] for s in newest)}


def test_damaged_checkpoints_that_were_passed_over_do_not_count_as_new_ones(tmp_path):
    for step in (50, 100):
        checkpoint.save(tmp_path, step, {"step": step}, best_step=50)
    (tmp_path / "00000100" / "state.json").write_text("damaged")
    for step in (60, 70):  # resumed from 50
        checkpoint.save(tmp_path, step, {"step": step}, best_step=60)
        checkpoint.prune(tmp_path, keep=1, step=step)
    assert {int(path.name) for path in checkpoint.steps(tmp_path)} == {60, 70, 100}


def test_leftovers_of_a_crash_are_removed(tmp_path):
    checkpoint.save(tmp_path, 1, some_state())
    (tmp_path / ".unfinished-00000002").mkdir()
    (tmp_path / ".unfinished-00000002" / "tensors.safetensors").write_bytes(b"half")
    assert checkpoint.load_newest(tmp_path, pytest.fail) is not None
    assert [path.name for path in tmp_path.iterdir()] == ["00000001"]


def test_the_manifest_is_of_what_was_written(tmp_path):
    path = checkpoint.save(tmp_path, 3, some_state(), best_step=2)
    manifest = json.loads((path / "manifest.json").read_text())
    assert (manifest["step"], manifest["best_step"]) == (3, 2)
    assert manifest["files"]["tensors.safetensors"]["bytes"] == (path / "tensors.safetensors").stat().st_size
