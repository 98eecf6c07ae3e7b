"""A new objective is one file and one line in the registry: then it does all that the others do."""

from dataclasses import replace

import pytest
import torch

from mmb.report import write_report
from mmb.training import METHODS, Method, Observer, Run, evaluate_run, export_run, predict_file, train
from mmb.training.loop.capture import decide_capture
from mmb.training.loop.setup import make_setup
from mmb.training.runs import checkpoint
from processes import in_processes
from tiny_runs import tiny_recipe

LINE = {"centered": Method("Centered logistic", "toy_objective:CenteredLogistic")}
SHORT = {"model": {"dropout": 0.0}, "training": {"steps": 6, "evaluate_every": 3, "checkpoint_every": 2}}
STEADY = {**SHORT, "optimizer": {"name": "momentum", "lr": 0.1, "clip": 0.5}}


@pytest.fixture(autouse=True)
def one_line_in_the_registry(monkeypatch):
    monkeypatch.setitem(METHODS, "centered", LINE["centered"])


def newest(run):
    return checkpoint.load(checkpoint.steps(run.checkpoints)[-1])["job"]


def test_it_trains_resumes_predicts_exports_and_is_reported(tmp_path):
    table = "\n".join(f"{k % 17},{k % 5},{int(k % 17 > 12)},{int(k % 5 > 3)}" for k in range(120))
    (tmp_path / "table.csv").write_text(f"u,v,a,b\n{table}\n")
    data = {"name": "csv", "path": str(tmp_path / "table.csv"), "labels": "a,b"}
    changes = {**SHORT, "data": data, "objective": {"lr_center": 0.3}, "schedule": {"decay_blocks": True}}
    whole = Run.create(tmp_path / "whole", tiny_recipe("centered", **changes))
    train(whole)
    assert bool((newest(whole)["objective"]["center"] != 0).all())

    cut = Run.create(tmp_path / "cut", whole.recipe)
    with pytest.raises(KeyboardInterrupt):
        train(cut, StopAt(4))
    train(cut)
    for name, value in newest(whole)["objective"].items():
        assert torch.equal(value, newest(cut)["objective"][name])
    for name, value in newest(whole)["model"].items():
        assert torch.equal(value, newest(cut)["model"][name])

    assert evaluate_run(whole, "test")["mean"] == whole.result()["test"]
    predict_file(whole, tmp_path / "table.csv", tmp_path / "scores.csv")
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 121
    export_run(whole, tmp_path / "exported")
    assert any((tmp_path / "exported").iterdir())
    write_report([whole, cut], tmp_path / "report.html")
    assert "Centered logistic" in (tmp_path / "report.html").read_text()


class StopAt(Observer):
    def __init__(self, step):
        self.step = step

    def stepped(self, step, numbers):
        if step >= self.step:
            raise KeyboardInterrupt


def test_it_may_be_captured():
    """And is, in the conformance suite of objectives."""
    for kind in ("rows", "tasks"):
        recipe = tiny_recipe("centered", **SHORT, sampler={"kind": kind})
        decide_capture(replace(recipe, training=replace(recipe.training, capture=True)), torch.device("cuda"))


def train_here(paths):
    METHODS.update(LINE)
    return [train(Run.open(path))["test"] for path in paths]


def test_it_is_sharded(tmp_path):
    runs = {
        (kind, where): Run.create(
            tmp_path / kind / where, tiny_recipe("centered", **STEADY, sampler={"kind": kind})
        )
        for kind in ("rows", "tasks")
        for where in ("alone", "together")
    }
    together = [run.path for (_, where), run in runs.items() if where == "together"]
    answers = in_processes(2, train_here, together)
    assert answers[0] == answers[1]
    for kind in ("rows", "tasks"):
        alone, many = runs[kind, "alone"], runs[kind, "together"]
        train(alone)
        found = make_setup(many.recipe)
        found.load_state_dict(newest(many))
        expected = newest(alone)["objective"]["center"]
        torch.testing.assert_close(found.objective.center, expected, rtol=1e-4, atol=1e-5)
        for name, value in newest(alone)["model"].items():
            torch.testing.assert_close(newest(many)["model"][name], value, rtol=1e-4, atol=1e-5)
