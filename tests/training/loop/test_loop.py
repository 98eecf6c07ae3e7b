"""What training does to a model: it learns, stops, reports, and leaves a full folder."""

import json
from dataclasses import replace

import pytest
import torch

from mmb import auc
from mmb.metrics import METRICS
from mmb.training import METHODS, Observer, Run, RunError, TrainingError, train
from mmb.training.loop import loop
from mmb.training.loop.make_step import make_step
from mmb.training.loop.step import Step
from mmb.training.runs import checkpoint
from mmb.training.runs.log import read_log
from tiny_runs import newest_step, tiny_recipe

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
LEARNING = {
    "data": {"rows": 1000, "noise": 0.1},
    "model": {"hidden": [32], "dropout": 0.0},
    "optimizer": {"lr": 0.02},
    "sampler": {"batch_size": 64, "rows_per_task": 32},
    "training": {"steps": 120, "evaluate_every": 60, "checkpoint_every": 120, "log_every": 60},
}
SHORT = {"steps": 8, "evaluate_every": 4, "checkpoint_every": 8}


def trained(path, *args, **changes):
    run = Run.create(path, tiny_recipe(*args, **changes))
    return run, train(run)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns(tmp_path, method):
    run, result = trained(tmp_path / "run", method, **LEARNING)
    start = read_log(run.path)[1]
    assert start["kind"] == "valid"
    assert start["step"] == 0
    assert result["test"]["pauc"] > max(0.7, start["pauc"] + 0.1)
    assert result["test"]["auc"] > 0.85


def test_a_run_leaves_a_full_folder(tmp_path):
    run, result = trained(tmp_path / "run", "pauc", training={"tensorboard": True})
    names = {path.name for path in run.path.iterdir()}
    assert names == {
        *(".lock", "recipe.yaml", "metrics.jsonl", "tensorboard", "checkpoints"),
        *("predictor.json", "table.txt", "result.json", "thresholds.jsonl", "validation.safetensors"),
    }
    assert list((run.path / "tensorboard").iterdir())
    assert Run.open(run.path).recipe == run.recipe
    assert run.result() == result
    assert f"{result['test']['pauc']:.4f}" in (run.path / "table.txt").read_text()
    kinds = [(record["kind"], record["step"]) for record in read_log(run.path)]
    assert kinds[0] == ("start", 0)
    assert [step for kind, step in kinds if kind == "train"] == list(range(4, 41, 4))
    assert [step for kind, step in kinds if kind == "valid"] == [0, 10, 20, 30, 40]
    predictor = json.loads((run.path / "predictor.json").read_text())
    assert len(predictor["tracked_thresholds"]) == 4
    assert len(predictor["thresholds"]["0.1"]) == 4


@pytest.mark.parametrize("select", METRICS)
def test_every_metric_selects_weights_and_is_in_the_table(tmp_path, select):
    settings = {"steps": 16, "evaluate_every": 4, "select": select}
    run, result = trained(tmp_path / "run", optimizer={"lr": 0.03}, training=settings)
    values = {record["step"]: record[select] for record in read_log(run.path) if record["kind"] == "valid"}
    assert list(values) == [0, 4, 8, 12, 16]
    assert result["best_step"] == max(values, key=lambda step: (METRICS[select].gain(values[step]), -step))
    assert result["valid"][select] == pytest.approx(values[result["best_step"]])
    assert set(result["test"]) == {"auc", "pauc", "ap", select}
    assert len(result["tasks"][f"test_{select}"]) == 4
    table = (run.path / "table.txt").read_text()
    assert METRICS[select].title_at(0.1) in table
    assert f"{result['test'][select]:.4f}" in table


def test_same_seed_same_run_other_seed_other_run(tmp_path):
    before = torch.get_rng_state()
    results = [
        trained(tmp_path / str(i), seed=seed, training=SHORT)[1]["test"] for i, seed in enumerate((1, 1, 2))
    ]
    assert results[0] == results[1] != results[2]
    assert torch.equal(torch.get_rng_state(), before)


def test_early_stopping(tmp_path):
    settings = {"optimizer": {"lr": 1e-9}, "training": {"patience": 2, "steps": 400}}
    run, result = trained(tmp_path / "run", "ce", **settings)
    valid = [record["step"] for record in read_log(run.path) if record["kind"] == "valid"]
    assert result["steps"] == valid[-1] < 400
    assert valid[-1] - result["best_step"] == 20
    assert train(run) == result  # a finished run stays as it is


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_bad_weights_do_not_get_into_a_checkpoint(tmp_path, monkeypatch, device):
    """On a GPU, and in one of several processes, nothing raises when a batch is refused."""
    changes = {"log_every": 40, "evaluate_every": 40, "device": device, "capture": device == "cuda"}
    run = Run.create(tmp_path / "run", tiny_recipe(sampler={"kind": "rows"}, training=changes))
    steps = []

    def make_poisoned(setup, *rest, **options):
        take_step = make_step(setup, *rest, **options)

        class Poisoned(Step):
            def __call__(self, batch):
                steps.append(batch)
                poison = torch.nan if len(steps) == 13 else 1.0
                return take_step(replace(batch, inputs=batch.inputs * poison))

        return Poisoned(setup)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "make_step", make_poisoned)
        patch.setattr(auc.Objective, "can_raise", False)
        with pytest.raises(TrainingError, match="loss is nan at step 15"):
            train(run)
    assert newest_step(run) == 10
    assert checkpoint.load(run.checkpoints / "00000010")["job"]["model"]["bias"].isfinite().all()
    whole = trained(tmp_path / "whole", sampler={"kind": "rows"}, training=changes)[1]
    assert train(run)["test"] == pytest.approx(whole["test"], abs=0 if device == "cpu" else 5e-3)


def test_a_loss_that_is_not_finite_ends_training_with_advice(tmp_path):
    run = Run.create(tmp_path / "run", tiny_recipe("ce", optimizer={"name": "sgd", "lr": 1e30}))
    with pytest.raises(TrainingError, match=r"step \d+, scores.*task \d.*optimizer\.lr"):
        train(run)


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    trained(tmp_path / "run", "ce", training={"steps": 1})
    with pytest.raises(RunError, match="mmb resume"):
        Run.create(tmp_path / "run", tiny_recipe())
    with pytest.raises(RunError, match="no run"):
        Run.open(tmp_path)


# mlp 8 -> 8 -> 4 tasks: a copy has 8 * 8 + 8 + 8 + 1 = 81 weights
COPIES = "4 weight copies of 81 weights in bfloat16 on cpu: 648 bytes"


class Notes(Observer):
    def __init__(self):
        self.notes = []

    def note(self, message):
        self.notes.append(message)


@pytest.mark.parametrize(
    ("method", "options", "notes", "copies"),
    [
        ("auc-ct", {"lr_dual": 0.1, "copies_dtype": "bfloat16", "copies_device": "cpu"}, [COPIES], 648),
        ("auc", {}, [], 0),
    ],
)
def test_memory_of_copies_is_noted_before_training_and_that_of_blocks_logged(
    tmp_path, method, options, notes, copies
):
    observer = Notes()
    run = Run.create(tmp_path / "run", tiny_recipe(method, objective=options, training=SHORT))
    train(run, observer)
    assert [note.split(" per process")[0] for note in observer.notes] == notes
    assert read_log(run.path)[0]["block_bytes"] == copies + 3 * 4 * 4  # dual and two means


def test_the_old_name_of_the_observer_says_the_new_one(tmp_path):
    with pytest.raises(TypeError, match="observer"):
        train(Run(tmp_path, tiny_recipe()), watch=Observer())
    with pytest.raises(ImportError, match="Observer"):
        from mmb.training import Watch  # noqa: F401


def test_prefetching_copies_changes_nothing(tmp_path, monkeypatch):
    recipe = tiny_recipe("auc-ct", training=SHORT)
    ahead = train(Run.create(tmp_path / "ahead", recipe))
    monkeypatch.setattr("mmb.auc.CompositionalAUC.prefetch", lambda self, tasks: None)
    plain = train(Run.create(tmp_path / "plain", recipe))
    assert {**ahead, "seconds": 0} == {**plain, "seconds": 0}
