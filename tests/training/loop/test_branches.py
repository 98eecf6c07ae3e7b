"""How many steps the branches of a run get."""

import json
import math

import pytest
import torch

from mmb.training import Run, train
from mmb.training.loop.branches import jitter, rise_at_the_end, still_rises
from mmb.training.runs import checkpoint
from mmb.training.runs.log import read_log
from mmb.training.runs.tables import result_table
from tiny_runs import tiny_recipe


def last_weights(run):
    return checkpoint.load(checkpoint.steps(run.checkpoints)[-1])["job"]["model"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = Run.create(tmp_path_factory.mktemp("run"), tiny_recipe("ce"))
    train(run)
    return run


def test_a_first_phase_that_still_improves_is_continued_with_the_steps_of_all_branches(tmp_path):
    """As a single branch of that length does."""
    soup = {"share": 0.5, "start": False, "still_gaining": 1}
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


GAINING = {
    "data": {"noise": 0.0, "rows": 1000},
    "optimizer": {"lr": 0.03},
    "training": {"steps": 10, "evaluate_every": 5},
    "branches": {"ce": {}, "auc": {}, "pauc": {}},
}


def test_a_first_branch_that_gains_much_trains_on_with_the_steps_of_all(tmp_path):
    soup = {"share": 1.0, "still_rising": 1}
    result = train(run := Run.create(tmp_path / "soup", tiny_recipe("soup", soup=soup, **GAINING)))
    branch = Run.open(run.path / "branches" / "ce")
    longer = Run.open(branch.path / "longer")
    assert list(result["branches"]) == ["start", "ce", "ce-longer"]
    assert [facts["steps"] for facts in result["branches"].values()] == [10, 10, 20]
    assert result["steps"] == 40
    assert [facts["share"] for facts in result["branches"].values()] == [0, 0, 1]
    gain = branch.result()["valid"]["pauc"] - Run.open(run.path / "pretrain").result()["valid"]["pauc"]
    assert result["still_gaining"] == pytest.approx(gain, rel=0.05)
    assert f"rose by {result['still_gaining']:.3f} in the first branch" in result_table(result)
    first = next(record for record in read_log(longer.path) if record["kind"] == "valid")
    assert first["pauc"] == pytest.approx(branch.result()["valid"]["pauc"])  # where the branch was best
    assert all(torch.equal(value, last_weights(longer)[name]) for name, value in last_weights(run).items())


@pytest.mark.parametrize("still_gaining", [0.99, 1])
def test_a_first_branch_that_gains_less_is_one_of_all(tmp_path, still_gaining):
    soup = {"share": 1.0, "still_rising": 1, "still_gaining": still_gaining}
    result = train(Run.create(tmp_path / "soup", tiny_recipe("soup", soup=soup, **GAINING)))
    assert list(result["branches"]) == ["start", "ce", "auc", "pauc"]
    assert "still_gaining" not in result


def test_a_gain_within_noise_is_none(tmp_path, monkeypatch):
    soup = {"share": 1.0, "still_rising": 1}
    run = Run.create(tmp_path / "soup", tiny_recipe("soup", soup=soup, **GAINING))
    monkeypatch.setattr("mmb.soup.evidence", lambda *_: 2.9)
    assert "still_gaining" not in train(run)


def logged(run, **curves):
    """Write curves of metrics on the validation rows to the log of a run, at equal distances."""
    count = len(next(iter(curves.values())))
    with (run.path / "metrics.jsonl").open("w") as file:
        for place in range(count):
            values = {name: curve[place] for name, curve in curves.items()}
            file.write(json.dumps({"kind": "valid", "step": 40 * (place + 1) // count, **values}) + "\n")
    return run


def test_the_rise_at_the_end_is_that_of_the_best_value_so_far(finished):
    assert rise_at_the_end(logged(finished, pauc=[0.5, 0.625, 0.5, 0.5, 0.75]), "pauc") == 0.125
    assert rise_at_the_end(logged(finished, pauc=[0.5, 0.625, 0.5, 0.5, 0.5]), "pauc") == -0.125
    assert math.isnan(rise_at_the_end(logged(finished, pauc=[None] * 5), "pauc"))  # no positives to rank
    assert math.isnan(rise_at_the_end(logged(finished, pauc=[0.5]), "pauc"))


def test_jitter_is_the_deviation_of_errors_around_any_line(finished):
    noise = 0.01 * torch.randn(2000, generator=torch.Generator().manual_seed(0))
    line = torch.linspace(0.5, 0.9, 2000)
    assert jitter(logged(finished, auc=(line + noise).tolist()), "auc") == pytest.approx(0.01, rel=0.1)
    assert jitter(logged(finished, auc=line.tolist()), "auc") == pytest.approx(0, abs=1e-6)
    assert jitter(logged(finished, auc=[0.5, 0.7]), "auc") == 0


def test_both_metrics_must_rise_beyond_noise(finished):
    rising = [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]
    flat = [0.8] * 10
    jumping = [0.6, 0.7, 0.6, 0.7, 0.6, 0.7, 0.6, 0.7, 0.6, 0.75]
    assert still_rises(logged(finished, pauc=rising, auc=rising), 0.05)
    assert not still_rises(logged(finished, pauc=rising, auc=rising), 0.15)
    assert not still_rises(logged(finished, pauc=rising, auc=flat), 0.0)
    assert not still_rises(logged(finished, pauc=rising, auc=jumping), 0.0)
    assert not still_rises(logged(finished, pauc=jumping, auc=rising), 0.0)
