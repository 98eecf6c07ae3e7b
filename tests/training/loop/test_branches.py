"""How many steps the branches of a run get."""

import json
import math

import torch

from mmb.training import Run, train
from mmb.training.loop.branches import rise_at_the_end, still_rises
from mmb.training.runs import checkpoint
from mmb.training.runs.tables import result_table
from tiny_runs import tiny_recipe


def last_weights(run):
    return checkpoint.load(checkpoint.steps(run.checkpoints)[-1])["job"]["model"]


def test_a_first_phase_that_still_improves_is_continued_with_the_steps_of_all_branches(tmp_path):
    """As a single branch of that length does."""
    soup = {"share": 0.5, "start": False}
    training = {"steps": 20, "evaluate_every": 4}
    shared = {"data": {"noise": 0.0, "rows": 1000}, "optimizer": {"lr": 0.03}, "training": training}
    recipe = tiny_recipe("soup", soup={**soup, "still_rising": 0.0}, branches={"ce": {}, "auc": {}}, **shared)
    result = train(run := Run.create(tmp_path / "soup", recipe))
    start = Run.open(run.path / "pretrain")
    assert rise_at_the_end(start, "pauc") == result["still_rising"] > 0
    assert f"rose by {result['still_rising']:.3f}" in result_table(result)
    assert list(result["branches"]) == ["start", "ce"]
    assert [path.name for path in (run.path / "branches").iterdir()] == ["ce"]
    assert result["branches"]["ce"]["steps"] == 20
    soup["share"] = 1.0
    alone = tiny_recipe("soup", soup=soup, branches={"ce": {}}, init_from=str(start.path), **shared)
    control = Run.create(tmp_path / "control", alone)
    assert "still_rising" not in train(control)
    assert all(torch.equal(value, last_weights(control)[name]) for name, value in last_weights(run).items())


def test_the_rise_at_the_end_is_that_of_the_best_value_so_far(tmp_path):
    run = Run.create(tmp_path, tiny_recipe("ce"))
    train(run)
    values = {0: 0.9, 10: 0.5, 20: 0.625, 30: 0.5, 32: 0.5, 40: 0.75}  # the last fifth begins after step 32

    def rise():
        lines = [json.dumps({"kind": "valid", "step": step, "pauc": value}) for step, value in values.items()]
        (run.path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        return rise_at_the_end(run, "pauc")

    assert rise() == 0.125
    values[40] = 0.5
    assert rise() == -0.125
    values[40] = None  # no positives among the validation rows
    assert math.isnan(rise())


def test_partial_auc_that_rises_alone_may_do_so_by_chance(tmp_path):
    run = Run.create(tmp_path, tiny_recipe("ce"))
    train(run)

    def log(auc):
        records = [{"step": 32, "pauc": 0.5, "auc": 0.75}, {"step": 40, "pauc": 0.625, "auc": auc}]
        lines = [json.dumps({"kind": "valid", **record}) for record in records]
        (run.path / "metrics.jsonl").write_text("\n".join(lines) + "\n")

    log(auc=0.75)
    assert not still_rises(run, 0.0)
    log(auc=0.8)
    assert still_rises(run, 0.1)
    assert not still_rises(run, 0.125)
