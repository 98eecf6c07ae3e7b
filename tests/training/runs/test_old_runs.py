"""Runs of version 0.1.0: finished ones are used as they are, others are not continued."""

import hashlib
import json
import re
import shutil

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from mmb._checksums import with_checksum, without_checksum
from mmb.report.selected_scores import run_scores
from mmb.training import CheckpointError, Run, RunError, evaluate_run, predict_file, train
from mmb.training.runs import checkpoint
from tiny_runs import tiny_recipe


def aged(name):
    """The name that version 0.1.0 gave a tensor."""
    return re.sub(r"\btracked\.", "threshold.", name).replace("operating_points.state", "operating")


def age(path):
    """Rewrite the folder of a run as version 0.1.0 wrote it."""
    recipe = yaml.safe_load((path / "recipe.yaml").read_text())
    recipe["objective"]["scores"] = recipe["objective"].pop("transform").replace("recentered", "recentred")
    (path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    for folder in checkpoint.steps(path / "checkpoints"):
        manifest = json.loads((folder / "manifest.json").read_text())
        del manifest["format"], manifest["version"], manifest["sha256"]
        tensors = load_file(folder / "tensors.safetensors")
        old = {aged(name): t[:, 0].contiguous() if "operating" in name else t for name, t in tensors.items()}
        assert old.keys() != tensors.keys()
        save_file(old, folder / "tensors.safetensors")
        state = json.loads((folder / "state.json").read_text())
        state["job"]["objective"] = {
            aged(name): {key: aged(place) for key, place in value.items()}
            for name, value in state["job"]["objective"].items()
        }
        (folder / "state.json").write_text(json.dumps(state))
        for name, entry in manifest["files"].items():
            content = (folder / name).read_bytes()
            entry |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture(scope="module")
def new(tmp_path_factory):
    recipe = tiny_recipe("pauc", objective={"transform": "recentered"}, training={"steps": 10})
    run = Run.create(tmp_path_factory.mktemp("runs") / "new", recipe)
    train(run)
    return run


@pytest.fixture
def old(new, tmp_path):
    age(shutil.copytree(new.path, tmp_path / "old"))
    return Run.open(tmp_path / "old")


def test_a_finished_run_is_used_as_it_is(new, old, tmp_path):
    assert old.recipe == new.recipe
    assert evaluate_run(old, "test")["mean"] == new.result()["test"]
    (tmp_path / "rows.csv").write_text(",".join(f"x{j}" for j in range(8)) + "\n" + "0.5," * 7 + "1\n")
    for run in (old, new):
        predict_file(run, tmp_path / "rows.csv", tmp_path / run.path.name / "out.csv")
    written = [(tmp_path / name / "out.csv").read_text() for name in ("old", "new")]
    assert written[0] == written[1]
    shutil.copytree(new.path, tmp_path / "copy")
    tracked = [run_scores(run).tracked for run in (old, Run.open(tmp_path / "copy"))]
    assert tracked[0].keys() == tracked[1].keys() != set()
    for step, report in tracked[1].items():
        known = report.tracked.isfinite()  # version 0.1.0 did not ask how many negatives it had seen
        assert torch.equal(tracked[0][step].tracked[known], report.tracked[known])
    assert bool(known.all())


def test_an_unfinished_run_is_not_continued(old):
    (old.path / "result.json").unlink()
    with pytest.raises(RunError, match=r"mmb 0\.1\.0.*mmb train"):
        train(old)


def test_a_checkpoint_of_a_later_version_is_refused(new, tmp_path):
    copy = Run.open(shutil.copytree(new.path, tmp_path / "later"))
    manifest = checkpoint.steps(copy.checkpoints)[-1] / "manifest.json"
    later = {**without_checksum(json.loads(manifest.read_text())), "format": 99, "version": "9.0"}
    manifest.write_text(json.dumps(with_checksum(later)))
    with pytest.raises(CheckpointError, match=r"install mmb 9\.0"):
        checkpoint.load(manifest.parent)
    with pytest.raises(RunError, match=r"mmb 9\.0"):
        checkpoint.load_newest(copy.checkpoints, pytest.fail)
