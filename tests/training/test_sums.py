"""Sums of methods, as a recipe states them."""

from dataclasses import replace

import pytest
import torch
import yaml

from mmb import auc
from mmb.memory import NoRoomError
from mmb.report import write_report
from mmb.training import (
    RecipeError,
    Run,
    evaluate_run,
    export_run,
    predict_file,
    resolve,
    train,
    with_overrides,
)
from mmb.training.loop.capture import decide_capture
from mmb.training.loop.setup import divided_objective, make_setup
from mmb.training.processes.group import ONE
from mmb.training.recipes.resolution import to_plain
from mmb.training.runs import checkpoint
from mmb.training.runs.log import read_log
from tiny_runs import tiny_recipe

SHORT = {"training": {"steps": 6, "evaluate_every": 3, "checkpoint_every": 2}}
THREE = {
    "parts": {
        "auc": {"transform": "recentered", "margin": 4},
        "ce": {"weight": 0.5},
        "narrow": {"method": "pauc", "weight": 0.1, "max_fpr": 0.05},
        "wide": {"method": "pauc", "weight": 0.2},
    },
    "beta": 0.2,
}
BASE = {"method": "sum", "data": {"name": "digits"}}


def test_any_sum_can_be_stated_and_survives_writing():
    recipe = resolve({**BASE, "objective": THREE, "training": {"max_fpr": 0.3}})
    again = resolve(yaml.safe_load(yaml.safe_dump(to_plain(recipe), sort_keys=False)))
    assert again == recipe
    assert list(again.objective["parts"]) == ["auc", "ce", "narrow", "wide"]
    parts = again.objective["parts"]
    assert parts["auc"]["margin"] == 4.0
    assert parts["ce"] == {"method": "ce", "weight": 0.5, "task_weighting": 0.0}
    assert [parts[name]["max_fpr"] for name in ("narrow", "wide")] == [0.05, 0.3]
    changed = resolve(with_overrides(to_plain(recipe), ["objective.parts.wide.weight=0.7"]))
    assert changed.objective["parts"]["wide"] == {**parts["wide"], "weight": 0.7}


def test_a_sum_is_made_of_what_the_recipe_says():
    objective = make_setup(tiny_recipe("sum", objective=THREE)).objective
    assert isinstance(objective, auc.Sum)
    kinds = {name: type(part).__name__ for name, part in objective.parts.items()}
    assert kinds == {"auc": "MinMaxAUC", "ce": "CrossEntropy", "narrow": "PartialAUC", "wide": "PartialAUC"}
    assert objective.weights == (1.0, 0.5, 0.1, 0.2)
    assert objective.beta == 0.2
    assert objective.parts["auc"].transform == "recentered"
    assert objective.parts["narrow"].tracked.ends == (0.05,)


def test_presets_of_the_parts_hold():
    recipe = resolve({**BASE, "objective": {"parts": {"ce": {}, "auc-ct": {}}}})
    assert recipe.sampler.kind == "tasks"
    assert recipe.objective["parts"]["auc-ct"]["copies_as"] == "offsets"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("objective.parts={ce: {}}", "at least two.*ce"),
        ("objective.parts=3", r"objective\.parts.*mapping.*3"),
        ("objective.parts={ce: {}, auc: 1}", r"objective\.parts.*mapping"),
        ("objective.parts={ce: {}, auk: {}}", "'auk'.*'auc'"),
        ("objective.parts={ce: {}, auc: {method: auk}}", "'auk'.*'auc'"),
        ("objective.parts={ce: {}, sum: {}}", r"objective\.parts\.sum"),
        ("objective.parts={ce: {}, auc: {margn: 1}}", r"'objective\.parts\.auc\.margin'"),
        ("objective.parts={ce: {}, a.b: {method: auc}}", r"objective\.parts.*'a\.b'"),
        ("objective.parts={ce: {}, a b: {method: auc}}", r"objective\.parts.*'a b'"),
        ("objective.parts={ce: {}, keys: {method: auc}}", r"objective\.parts.*'keys'"),
        ("objective.parts={ce: {}, 1: {method: auc}}", r"objective\.parts.*got 1"),
        ("objective.parts={ce: {}, auc: {weight: much}}", r"objective\.parts\.auc\.weight.*much"),
    ],
)
def test_wrong_parts_are_refused(override, message):
    with pytest.raises(RecipeError, match=message):
        resolve(with_overrides(BASE, [override]))


def test_a_weight_of_zero_is_refused():
    recipe = tiny_recipe("sum", objective={"parts": {"ce": {}, "auc": {"weight": 0}}})
    with pytest.raises(ValueError, match="weight of part 1"):
        make_setup(recipe)


def test_it_trains_logs_predicts_exports_and_is_reported(tmp_path):
    table = "\n".join(f"{k % 17},{k % 5},{int(k % 17 > 12)},{int(k % 5 > 3)}" for k in range(120))
    (tmp_path / "table.csv").write_text(f"u,v,a,b\n{table}\n")
    data = {"name": "csv", "path": str(tmp_path / "table.csv"), "labels": "a,b"}
    schedule = {"name": "cosine", "decay_blocks": True}
    run = Run.create(
        tmp_path / "run", tiny_recipe("sum", **SHORT, data=data, objective=THREE, schedule=schedule)
    )
    train(run)
    state = checkpoint.load(checkpoint.steps(run.checkpoints)[-1])["job"]["objective"]
    assert bool((state["size"] > 0).all())
    logged = next(line for line in read_log(run.path) if "loss" in line)
    assert {"auc.loss", "ce.loss", "auc.gap", "ce.factor", "narrow.threshold"} <= logged.keys()
    assert evaluate_run(run, "test")["mean"] == run.result()["test"]
    predict_file(run, tmp_path / "table.csv", tmp_path / "scores.csv")
    export_run(run, tmp_path / "exported")
    write_report([run], tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 10_000


def captured(objective, **changes):
    recipe = tiny_recipe("sum", **changes, objective=objective)
    decide_capture(replace(recipe, training=replace(recipe.training, capture=True)), torch.device("cuda"))


def test_it_may_be_captured_if_its_parts_may():
    captured({})
    captured({"parts": {"ce": {}, "auc-ct-heads": {}}})
    captured({"parts": {"ce": {}, "sopa": {}}})
    with pytest.raises(ValueError, match=r"capture.*sum"):
        captured({"parts": {"ce": {}, "auc-ct": {}}})


def test_memory_of_the_parts_is_checked(monkeypatch):
    monkeypatch.setattr("mmb.memory.free_bytes", lambda device: 1000)
    recipe = tiny_recipe("sum", objective={"parts": {"ce": {}, "auc-ct": {}}})
    setup = make_setup(tiny_recipe("ce"))
    labels = auc.Labels(setup.dataset.labels)
    with pytest.raises(NoRoomError, match="weight copies"):
        divided_objective(recipe, labels, setup.model, ONE)


def test_compositional_parts_train_too(tmp_path):
    for name in ("auc-ct", "auc-ct-heads"):
        run = Run.create(
            tmp_path / name,
            tiny_recipe("sum", **SHORT, objective={"parts": {"ce": {}, name: {"weight": 0.2}}}),
        )
        train(run)
        assert f"{name}.loss" in next(line for line in read_log(run.path) if "loss" in line)
