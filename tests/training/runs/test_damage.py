"""One flipped bit in any file of a run: it is noticed, or nothing that is read from the run changes."""

import os
import random
import shutil
from pathlib import Path

import pytest
import torch

from mmb.training import CheckpointError, Run, RunError, train
from mmb.training.loop import threshold_log
from mmb.training.runs import checkpoint
from mmb.training.runs.averaged_runs import Predictor
from mmb.training.runs.log import read_log
from tiny_runs import tiny_recipe

FLIPS = 60


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = Run.create(tmp_path_factory.mktemp("runs") / "run", tiny_recipe("pauc", training={"steps": 10}))
    train(run)
    return run


def read_all(path):
    """All that is read back from the folder of a run."""
    run = Run.open(path)
    predictor = Predictor.load(run)
    weights = {name: values.tolist() for name, values in predictor.model.state_dict().items()}
    manifests = [checkpoint.verify(one) for one in checkpoint.steps(run.checkpoints)]
    known = ("kind", "step", "auc", "pauc", "loss")  # a bit in the name of a checksum makes another key
    log = [{key: record[key] for key in known if key in record} for record in read_log(path)]
    facts = run.result()["test"], predictor.thresholds, predictor.task_names, weights, manifests
    return run.recipe, facts, log, threshold_log.read(path)


FILES = ["recipe.yaml", "result.json", "predictor.json", "metrics.jsonl", "thresholds.jsonl"]


@pytest.mark.parametrize("name", [*FILES, "manifest.json", "state.json", "tensors.safetensors"])
def test_a_flipped_bit_is_noticed_or_changes_nothing(run, tmp_path, name):
    copy = Path(shutil.copytree(run.path, tmp_path / "run"))
    file = copy / name if name in FILES else run.best_checkpoint() / name
    file = copy / file.relative_to(run.path) if name not in FILES else file
    recipe, facts, log, thresholds = read_all(copy)
    whole, places = file.read_bytes(), random.Random(name)
    noticed = 0
    for _ in range(FLIPS):
        changed = bytearray(whole)
        changed[places.randrange(len(whole))] ^= 1 << places.randrange(8)
        file.write_bytes(changed)
        try:
            found = read_all(copy)
        except (RunError, CheckpointError):
            noticed += 1
            continue
        assert found[:2] == (recipe, facts)
        assert all(record in log for record in found[2])  # a damaged line is left out
        noticed += len(found[2]) < len(log) or len(found[3]) < len(thresholds)
        for step, report in found[3].items():
            for one, other in zip(report, thresholds[step], strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    assert noticed > FLIPS / 2


def refuse(monkeypatch, owner, name, forbidden):
    """Let a function raise as for a user without permission; tests may run as one who has all."""
    real = getattr(owner, name)

    def refused(path, *given, **options):
        if Path(path) == forbidden:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *given, **options)

    monkeypatch.setattr(owner, name, refused)


@pytest.mark.parametrize("name", ["recipe.yaml", "result.json", "predictor.json"])
def test_files_without_permission_are_not_called_damaged(run, monkeypatch, name):
    refuse(monkeypatch, Path, "read_text", run.path / name)
    with pytest.raises(PermissionError, match=name):
        read_all(run.path)


@pytest.mark.parametrize("what", ["folder", "manifest", "tensors"])
def test_checkpoints_without_permission_do_not_count_as_none(run, tmp_path, monkeypatch, what):
    copy = Run.open(shutil.copytree(run.path, tmp_path / "run"))
    (copy.path / "result.json").unlink()
    newest = checkpoint.steps(copy.checkpoints)[-1]
    if what == "folder":
        refuse(monkeypatch, os, "listdir", copy.checkpoints)
    elif what == "manifest":
        refuse(monkeypatch, Path, "read_text", newest / "manifest.json")
    else:
        refuse(monkeypatch, checkpoint, "_fingerprint", newest / "tensors.safetensors")
    log = (copy.path / "metrics.jsonl").read_bytes()
    with pytest.raises(OSError, match="Permission denied"):
        train(copy)
    assert (copy.path / "metrics.jsonl").read_bytes() == log
    monkeypatch.undo()
    assert train(copy)["test"] == run.result()["test"]


def test_a_changed_recipe_is_accepted_without_its_checksum(run, tmp_path):
    copy = Path(shutil.copytree(run.path, tmp_path / "run"))
    text = (copy / "recipe.yaml").read_text()
    changed = text.replace("seed: 0", "seed: 1")
    assert changed != text
    (copy / "recipe.yaml").write_text(changed)
    with pytest.raises(RunError, match=r"recipe\.yaml.*changed.*remove the first line"):
        Run.open(copy)
    (copy / "recipe.yaml").write_text(changed.partition("\n")[2])
    assert Run.open(copy).recipe.seed == 1
