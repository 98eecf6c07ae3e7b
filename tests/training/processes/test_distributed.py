"""Training in many processes: the path of one, from any checkpoint."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest
import torch

from mmb.training import METHODS, Run, merge, train
from mmb.training.loop import loop
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.selected_weights import evaluate_run
from mmb.training.loop.setup import Setup, make_setup
from mmb.training.processes.group import Ranks
from mmb.training.processes.sharded_state import places
from mmb.training.runs import checkpoint
from mmb.training.runs.log import read_log
from mmb.training.runs.scoring import predict_logits
from processes import in_processes, in_turn
from tiny_runs import molecule_recipe, tiny_recipe

KINDS = ("rows", "tasks")
BY_BOTH = ("ce", "auc-ct", "pauc", "pauc-pairwise", "sum")
SHORT = {"model": {"dropout": 0.0}, "training": {"steps": 4, "evaluate_every": 4, "checkpoint_every": 4}}
# Not Adam, which makes steps of the size of lr out of gradients that are zero but for rounding.
STEADY = {**SHORT, "optimizer": {"name": "momentum", "lr": 0.3, "clip": 0.05}}
SETTINGS = {
    "mixed precision": {"training": {"precision": "bfloat16"}},
    "warm start": {"training": {"warm_start": True, "patience": 1}},
    "few rows": {"sampler": {"batch_size": 3}},
    "decaying": {"schedule": {"name": "cosine", "decay_blocks": True}},
    "adam, blind to shifts": {"method": "pauc-pairwise", "optimizer": {"name": "adam", "lr": 0.03}},
    "two phases": {"method": "auc-ct", "pretrain": {"method": "ce", "training": {"steps": 3}}},
}


def recipes():
    """Every method by rows or by tasks in turn, some by both, and every setting, by name.

    Steps of every objective with both kinds of batches are compared in `tests/auc/test_sharded.py`.
    """
    kinds = {m: KINDS if m in BY_BOTH else (KINDS[n % 2],) for n, m in enumerate(METHODS)}
    made = {f"{m}-{k}": tiny_recipe(m, **STEADY, sampler={"kind": k}) for m in kinds for k in kinds[m]}
    return made | {name: tiny_recipe(**merge({**SHORT, "method": "pauc"}, s)) for name, s in SETTINGS.items()}


def final_state(run):
    return checkpoint.load(checkpoint.steps(run.checkpoints)[-1])["job"]


def train_all(runs):
    """Train runs one after the other; returns their results."""
    return [train(run)["test"] for run in runs]


def lines_of(run):
    """The log, and the losses in it."""
    log = read_log(run.path)
    return [(line["kind"], line["step"]) for line in log], [line["loss"] for line in log if "loss" in line]


@pytest.mark.slow
def test_every_method_and_setting_trains_as_in_one_process(tmp_path):
    """Three processes, with two, two and none of four tasks; one start of them serves all runs."""
    runs = {name: Run.create(tmp_path / "many" / name, recipe) for name, recipe in recipes().items()}
    answers = in_processes(3, train_all, list(runs.values()))
    assert answers[0] == answers[1] == answers[2]
    for name, many in runs.items():
        one = Run.create(tmp_path / "one" / name, many.recipe)
        expected = train(one)
        (lines, losses), (expected_lines, expected_losses) = lines_of(many), lines_of(one)
        assert lines == expected_lines, name
        tolerance = 1e-2 if name == "mixed precision" else 1e-3
        assert losses == pytest.approx(expected_losses, rel=tolerance), name
        if name in SETTINGS:
            continue
        for metric, value in expected["test"].items():
            assert many.result()["test"][metric] == pytest.approx(value, abs=2e-3), name
        assert evaluate_run(many, "test")["mean"] == pytest.approx(many.result()["test"]), name  # by one
        weights, others = final_state(one)["model"], final_state(many)["model"]
        for key, weight in weights.items():
            message = lambda text, name=name: f"{name} {text}"  # noqa: E731
            torch.testing.assert_close(others[key], weight, rtol=1e-4, atol=1e-5, msg=message)


class Stopped(Exception):
    pass


def train_until(paths, steps):
    """Train runs, or crash right after the checkpoint of a step.

    Returns:
        For each run the block state by task that it was started from, and its result.
    """
    real_save, real_load, found = loop.save, Setup.load_state_dict, []

    def save_and_stop(run, setup, progress, log):
        real_save(run, setup, progress, log)
        if progress.step == step:
            raise Stopped

    def load_and_look(setup, state):
        real_load(setup, state)
        where = places(setup.objective, setup.dataset.labels[setup.dataset.split["train"]])
        blocks = {name: where[name].piece(value) for name, value in setup.objective.state_dict().items()}
        if len(setup.optimizer.param_groups) > 1:
            blocks["moments"] = list(setup.optimizer.state_dict()["state"].values())[-1]["exp_avg"]
        found[-1][0] = {name: value.tolist() for name, value in blocks.items()}

    loop.save, Setup.load_state_dict = save_and_stop, load_and_look
    try:
        for path, step in zip(paths, steps, strict=True):  # noqa: B007 -- `save_and_stop` reads it
            found.append([None, None])
            with contextlib.suppress(Stopped):
                found[-1][1] = train(Run.open(path))
                for changing in ("seconds", "versions"):
                    found[-1][1].pop(changing)
    finally:
        loop.save, Setup.load_state_dict = real_save, real_load
    return found


def started_from(answers, number):
    """The block state of all processes that one of the runs was started from."""
    parts = [answer[number][0] for answer in answers]
    return {name: [row for part in parts for row in part[name]] for name in parts[0]}


@pytest.mark.parametrize(("before", "after"), [(3, (2, 1)), (1, (3,))])
def test_resumed_by_another_number_of_processes(tmp_path, before, after):
    """By as many, the same bit for bit; by others, from bit-identical block state to the same end."""
    cases = [("pauc", "rows"), ("auc-ct", "tasks"), ("sopa-s", "tasks")]
    training = {"steps": 6, "evaluate_every": 6, "checkpoint_every": 4}
    recipes = [
        tiny_recipe(
            method, model={"dropout": 0.0}, training=training, sampler={"kind": kind}, data={"tasks": 7}
        )
        for method, kind in cases
    ]
    undisturbed, stopped, resumed = (
        [Run.create(tmp_path / where / recipe.method, recipe).path for recipe in recipes]
        for where in ("undisturbed", "stopped", "resumed")
    )
    calls = [(undisturbed, None), (stopped, 4), (resumed, 4), (resumed, None)]
    paths = [path for runs, _ in calls for path in runs]
    answers = run_in(before, paths, [step for runs, step in calls for _ in runs])
    expected, again = answers[0][: len(cases)], [answer[-len(cases) :] for answer in answers]
    others = {}
    for world in after:
        copies = [Path(shutil.copytree(path, tmp_path / f"by-{world}" / path.name)) for path in stopped]
        others[world] = run_in(world, copies, [None] * len(cases))
    for number, (method, _) in enumerate(cases):
        assert again[0][number][1] == expected[number][1]  # bit for bit
        for world in after:
            assert started_from(others[world], number) == started_from(again, number)
            for metric, value in expected[number][1]["test"].items():
                found = others[world][0][number][1]["test"][metric]
                assert found == pytest.approx(value, abs=2e-3), method


def run_in(world, paths, steps):
    return in_processes(world, train_until, paths, steps) if world > 1 else [train_until(paths, steps)]


def scores_of(path, rows):
    ranks, run = Ranks.of_this_process(), Run.open(path)
    with own_randomness(run.recipe.seed, torch.device("cpu")):
        made = make_setup(run.recipe, ranks)
    logits = predict_logits(made.model, made.dataset, made.dataset.split["valid"][:rows], 7, ranks=ranks)
    return logits.tolist()


def test_evaluation_is_shared_by_rows_and_whole_everywhere(tmp_path):
    """Also where there are fewer rows than processes."""
    run = Run.create(tmp_path / "run", tiny_recipe("ce", model={"dropout": 0.5}))
    calls = [(scores_of, run.path, rows) for rows in (30, 2)]
    expected = [torch.tensor(scores) for scores in in_turn(calls)]
    assert [scores.shape for scores in expected] == [(30, 4), (2, 4)]
    for answer in in_processes(3, in_turn, calls):
        for found, scores in zip(answer, expected, strict=True):
            torch.testing.assert_close(torch.tensor(found), scores, rtol=1e-6, atol=1e-6)


def train_and_look(paths):
    """Train, and return the statistics of batch normalization that this process has at the end."""
    found = []
    real = loop.finish

    def look(run, setup, *rest):
        found.append({name: value.tolist() for name, value in setup.model.named_buffers()})
        return real(run, setup, *rest)

    loop.finish = look
    for path in paths:
        train(Run.open(path))
    return found


def test_statistics_of_batch_normalization_are_the_same_everywhere(tmp_path):
    pytest.importorskip("rdkit")
    cases = [("pauc", "rows"), ("pauc", "tasks"), ("auc-ct", "tasks"), ("ce", "rows")]
    training = {"steps": 4, "evaluate_every": 4, "checkpoint_every": 4}
    runs = []
    for method, kind in cases:
        recipe = molecule_recipe(tmp_path, method, sampler={"kind": kind}, training=training)
        runs.append(Run.create(tmp_path / f"{method}-{kind}", recipe))
    answers = in_processes(3, train_and_look, [run.path for run in runs])
    assert answers[0] == answers[1] == answers[2]
    for number, run in enumerate(runs):
        start = checkpoint.load(checkpoint.steps(run.checkpoints)[0])["job"]["model"]
        moved = [name for name in start if "running_mean" in name]
        assert moved
        assert run.finished
        assert any(answers[0][number][name] != [0.0] * len(start[name]) for name in moved)
