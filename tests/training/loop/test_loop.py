"""What training does to a model: it learns, stops, starts from another run, and leaves a full folder."""

import json

import pytest
import torch

from mmb.training import METHODS, Run, RunError, TrainingError, train
from mmb.training.loop.initial_weights import take_over
from mmb.training.loop.outcome import evaluate_run
from mmb.training.loop.setup import make_setup
from mmb.training.runs import checkpoint
from mmb.training.runs.log import read_log
from tiny_runs import tiny_recipe

LEARNING = {
    "data": {"rows": 1500, "noise": 0.1},
    "model": {"hidden": [32], "dropout": 0.0},
    "optimizer": {"lr": 0.01},
    "sampler": {"batch_size": 64, "rows_per_task": 32},
    "training": {"steps": 300, "evaluate_every": 50, "checkpoint_every": 300},
}


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
        *("predictor.json", "table.txt", "result.json", "thresholds.jsonl"),
    }
    assert list((run.path / "tensorboard").iterdir())
    assert Run.open(run.path).recipe == run.recipe
    assert json.loads((run.path / "result.json").read_text()) == result
    assert f"{result['test']['pauc']:.4f}" in (run.path / "table.txt").read_text()
    kinds = [(record["kind"], record["step"]) for record in read_log(run.path)]
    assert kinds[0] == ("start", 0)
    assert [step for kind, step in kinds if kind == "train"] == list(range(4, 41, 4))
    assert [step for kind, step in kinds if kind == "valid"] == [0, 10, 20, 30, 40]
    predictor = json.loads((run.path / "predictor.json").read_text())
    assert len(predictor["tracked_thresholds"]) == 4
    assert len(predictor["thresholds"]["0.1"]) == 4


def test_the_best_weights_on_validation_are_those_judged(tmp_path):
    run, result = trained(tmp_path / "run", "auc", optimizer={"lr": 0.03})
    valid = {r["step"]: r["pauc"] for r in read_log(run.path) if r["kind"] == "valid"}
    assert result["valid"]["pauc"] == max(valid.values()) == valid[result["best_step"]]
    assert evaluate_run(run, "valid")["mean"] == result["valid"]
    assert evaluate_run(run, "test")["mean"] == result["test"]
    assert evaluate_run(run, "test", max_fpr=0.5)["mean"]["pauc"] != result["test"]["pauc"]


def test_same_seed_same_run_other_seed_other_run(tmp_path):
    before = torch.get_rng_state()
    results = [trained(tmp_path / str(i), seed=seed)[1]["test"] for i, seed in enumerate((1, 1, 2))]
    assert results[0] == results[1] != results[2]
    assert torch.equal(torch.get_rng_state(), before)


def test_a_run_without_test_rows_finishes(tmp_path):
    _, result = trained(tmp_path / "run", data={"fractions": [0.6, 0.4, 0.0]})
    assert result["test"] == {"auc": None, "pauc": None, "ap": None}
    assert result["tasks"]["test_auc"] == [None] * 4
    assert result["valid"]["auc"] > 0


def test_a_run_without_validation_rows_says_so(tmp_path):
    with pytest.raises(ValueError, match="among the validation rows, so no weights can be selected"):
        trained(tmp_path / "run", data={"fractions": [0.6, 0.0, 0.4]})


def test_early_stopping(tmp_path):
    settings = {"optimizer": {"lr": 1e-9}, "training": {"patience": 2, "steps": 400}}
    run, result = trained(tmp_path / "run", "ce", **settings)
    valid = [record["step"] for record in read_log(run.path) if record["kind"] == "valid"]
    assert result["steps"] == valid[-1] < 400
    assert valid[-1] - result["best_step"] == 20
    assert train(run) == result  # a finished run stays as it is


def test_two_phases_start_from_the_encoder_of_the_first(tmp_path):
    run, _ = trained(tmp_path / "run", "pauc", pretrain={"method": "ce", "training": {"steps": 20}})
    first = run.pretraining()
    assert first.finished
    setup = make_setup(run.recipe)
    own_head = setup.model.weight.detach().clone()
    take_over(setup, first, heads=False)
    selected = checkpoint.load(first.best_checkpoint())["job"]["model"]
    for name, value in setup.model.encoder.state_dict().items():
        assert torch.equal(value, selected[f"encoder.{name}"])
    assert torch.equal(setup.model.weight, own_head)
    take_over(setup, first, heads=True)
    assert torch.equal(setup.model.weight, selected["weight"])


def test_starting_from_a_run_puts_copies_at_its_weights(tmp_path):
    first, _ = trained(tmp_path / "first", "ce")
    setup = make_setup(tiny_recipe("auc-ct", objective={"copies_as": "weights"}))
    take_over(setup, first, heads=True)
    copies = setup.objective.copies
    for part, weight in zip(copies.split(copies.stacked), copies.weights(setup.model, None), strict=True):
        torch.testing.assert_close(part, weight.expand_as(part))


def test_a_run_that_does_not_fit_is_refused(tmp_path):
    first, _ = trained(tmp_path / "first", "ce")
    other = Run.create(tmp_path / "other", tiny_recipe(model={"hidden": [5]}, init_from=str(first.path)))
    with pytest.raises(RunError, match=r"encoder\.0\.weight is missing or has another shape"):
        train(other)
    unfinished = Run.create(tmp_path / "unfinished", tiny_recipe())
    third = Run.create(tmp_path / "third", tiny_recipe(init_from=str(unfinished.path)))
    with pytest.raises(RunError, match="not finished"):
        train(third)


def test_warm_start_places_block_variables(tmp_path):
    first, _ = trained(tmp_path / "first", "ce", **LEARNING)
    second = {**LEARNING, "training": {**LEARNING["training"], "steps": 1, "warm_start": True}}
    run, _ = trained(tmp_path / "run", "pauc", **second, init_from=str(first.path), init_heads=True)
    start = checkpoint.load(checkpoint.steps(run.checkpoints)[0])["job"]["objective"]
    assert (start["mean_positive"] > start["mean_negative"]).all()
    trained(tmp_path / "ce", "ce", training={"warm_start": True})  # has nothing to place, and trains


def test_a_loss_that_is_no_number_ends_training_with_advice(tmp_path):
    run = Run.create(tmp_path / "run", tiny_recipe("ce", optimizer={"name": "sgd", "lr": 1e38}))
    with pytest.raises(TrainingError, match=r"lower optimizer\.lr"):
        train(run)


def test_parts_without_a_class(tmp_path):
    rows = "\n".join(
        f"{k},{k % 2 if k < 40 else 0},{'train' if k < 20 else 'valid' if k < 40 else 'test'}"
        for k in range(60)
    )
    (tmp_path / "d.csv").write_text(f"x,y,part\n{rows}\n")
    csv = {"name": "csv", "path": str(tmp_path / "d.csv"), "labels": "y", "split_column": "part"}
    settings = {"model": {"name": "mlp", "hidden": []}, "sampler": {"batch_size": 8}}
    run, result = trained(tmp_path / "run", "ce", data=csv, **settings)
    assert result["test"] == {"auc": None, "pauc": None, "ap": None}
    assert "NaN" not in (run.path / "result.json").read_text()
    (tmp_path / "d.csv").write_text((tmp_path / "d.csv").read_text().replace("1,valid", "0,valid"))
    with pytest.raises(ValueError, match=r"no task has both .* among the validation rows"):
        trained(tmp_path / "other", "ce", data=csv, **settings)


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    trained(tmp_path / "run", "ce", training={"steps": 1})
    with pytest.raises(RunError, match="mmb resume"):
        Run.create(tmp_path / "run", tiny_recipe())
    with pytest.raises(RunError, match="no run in"):
        Run.open(tmp_path)
