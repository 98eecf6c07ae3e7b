"""Training in many processes: the path of one, from any checkpoint, and clear errors when one is lost."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest
import torch

from mmb.training import METHODS, Run, merge, train
from mmb.training.loop import loop
from mmb.training.loop.outcome import evaluate_run
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.setup import Setup, make_setup
from mmb.training.processes.group import ProcessError, Ranks, joined
from mmb.training.processes.sharded_state import places
from mmb.training.runs import checkpoint
from mmb.training.runs.log import read_log
from mmb.training.runs.scoring import predict_logits
from processes import in_processes
from tiny_runs import molecule_recipe, tiny_recipe

KINDS = ("rows", "tasks")
SHORT = {"model": {"dropout": 0.0}, "training": {"steps": 6, "evaluate_every": 3, "checkpoint_every": 2}}


def final_state(run):
    return checkpoint.load(checkpoint.steps(run.checkpoints)[-1])["job"]


def train_all(paths):
    """Train runs one after the other, and say what each came to here."""
    return [train(Run.open(path))["test"] for path in paths]


@pytest.mark.slow
def test_every_method_trains_as_in_one_process(tmp_path):
    """Unequal numbers of tasks: two, two and none of four."""
    names = [f"{method}-{kind}" for method in METHODS for kind in KINDS]
    # Not Adam, which makes steps of the size of lr out of gradients that are zero but for rounding.
    chosen = {**SHORT, "optimizer": {"name": "momentum", "lr": 0.3, "clip": 0.05}}
    recipes = [tiny_recipe(method, **chosen, sampler={"kind": kind}) for method in METHODS for kind in KINDS]
    alone, together = (
        [Run.create(tmp_path / where / name, recipe) for name, recipe in zip(names, recipes, strict=True)]
        for where in ("alone", "together")
    )
    answers = in_processes(3, train_all, [run.path for run in together])
    assert answers[0] == answers[1] == answers[2]
    for name, one, many in zip(names, alone, together, strict=True):
        expected = train(one)
        for metric, value in expected["test"].items():
            assert many.result()["test"][metric] == pytest.approx(value, abs=2e-3), name
        assert evaluate_run(many, "test")["mean"] == pytest.approx(many.result()["test"]), name  # by one
        weights, others = final_state(one)["model"], final_state(many)["model"]
        for key, weight in weights.items():
            torch.testing.assert_close(
                others[key], weight, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n} {m}"
            )
        logs = [read_log(run.path) for run in (one, many)]
        assert [(line["kind"], line["step"]) for line in logs[0]] == [
            (line["kind"], line["step"]) for line in logs[1]
        ]
        losses = [[line["loss"] for line in log if line["kind"] == "train"] for log in logs]
        assert losses[1] == pytest.approx(losses[0], rel=1e-3), name


SETTINGS = {
    "mixed precision": {"training": {"precision": "bfloat16"}},
    "warm start": {"training": {"warm_start": True, "patience": 1}},
    "few rows": {"sampler": {"batch_size": 3}},
    "decaying": {"schedule": {"name": "cosine", "decay_blocks": True}},
    "two phases": {"method": "auc-ct", "pretrain": {"method": "ce", "training": {"steps": 3}}},
}


@pytest.mark.slow
def test_every_setting_trains_as_in_one_process(tmp_path):
    recipes = {name: tiny_recipe(**merge({**SHORT, "method": "pauc"}, s)) for name, s in SETTINGS.items()}
    runs = [Run.create(tmp_path / "together" / name, recipe) for name, recipe in recipes.items()]
    in_processes(3, train_all, [run.path for run in runs])
    for run, (name, recipe) in zip(runs, recipes.items(), strict=True):
        alone = Run.create(tmp_path / "alone" / name, recipe)
        train(alone)
        losses = [
            [line["loss"] for line in read_log(r.path) if line["kind"] == "train"] for r in (alone, run)
        ]
        assert losses[1] == pytest.approx(losses[0], rel=1e-2 if name == "mixed precision" else 1e-3), name


class Stopped(Exception):
    pass


def train_until(paths, step=None):
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
        for path in paths:
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


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(4, (2, 1)), (1, (3,))])
def test_resumed_by_another_number_of_processes(tmp_path, before, after):
    """By as many, the same bit for bit; by others, from bit-identical block state to the same end."""
    cases = [("pauc", "rows"), ("auc-ct", "tasks"), ("sopa-s", "tasks")]
    recipes = [
        tiny_recipe(method, **SHORT, sampler={"kind": kind}, data={"tasks": 7}) for method, kind in cases
    ]
    undisturbed, stopped = (
        [Run.create(tmp_path / where / recipe.method, recipe).path for recipe in recipes]
        for where in ("undisturbed", "stopped")
    )
    expected = run_in(before, undisturbed)[0]
    run_in(before, stopped, 4)
    answers = {}
    for world in (before, *after):
        copies = [Path(shutil.copytree(path, tmp_path / f"by-{world}" / path.name)) for path in stopped]
        answers[world] = run_in(world, copies)
    for number, (method, _) in enumerate(cases):
        assert answers[before][0][number][1] == expected[number][1]  # bit for bit
        for world in after:
            assert started_from(answers[world], number) == started_from(answers[before], number)
            for metric, value in expected[number][1]["test"].items():
                found = answers[world][0][number][1]["test"][metric]
                assert found == pytest.approx(value, abs=2e-3), method


def run_in(world, paths, step=None):
    return in_processes(world, train_until, paths, step) if world > 1 else [train_until(paths, step)]


def scores_of(path, rows):
    ranks, run = Ranks.of_this_process(), Run.open(path)
    with own_randomness(run.recipe.seed, torch.device("cpu")):
        made = make_setup(run.recipe, ranks)
    logits = predict_logits(made.model, made.dataset, made.dataset.split["valid"][:rows], 7, ranks=ranks)
    return logits.tolist()


@pytest.mark.parametrize("rows", [30, 2])
def test_evaluation_is_shared_by_rows_and_whole_everywhere(tmp_path, rows):
    """Also where there are fewer rows than processes."""
    run = Run.create(tmp_path / "run", tiny_recipe("ce", model={"dropout": 0.5}))
    expected = torch.tensor(scores_of(run.path, rows))
    assert expected.shape == (rows, 4)
    for answer in in_processes(3, scores_of, run.path, rows):
        torch.testing.assert_close(torch.tensor(answer), expected, rtol=1e-6, atol=1e-6)


def train_and_look(paths):
    """Train, and return the statistics of batch normalisation that this process has at the end."""
    found = []
    real = loop.finish

    def look(run, setup, *rest):
        found.append({name: value.tolist() for name, value in setup.model.named_buffers()})
        return real(run, setup, *rest)

    loop.finish = look
    for path in paths:
        train(Run.open(path))
    return found


def test_statistics_of_batch_normalisation_are_the_same_everywhere(tmp_path):
    pytest.importorskip("rdkit")
    cases = [("pauc", "rows"), ("pauc", "tasks"), ("auc-ct", "tasks"), ("ce", "rows")]
    runs = [
        Run.create(tmp_path / f"{method}-{kind}", molecule_recipe(tmp_path, method, sampler={"kind": kind}))
        for method, kind in cases
    ]
    answers = in_processes(3, train_and_look, [run.path for run in runs])
    assert answers[0] == answers[1] == answers[2]
    for number, run in enumerate(runs):
        start = checkpoint.load(checkpoint.steps(run.checkpoints)[0])["job"]["model"]
        moved = [name for name in start if "running_mean" in name]
        assert moved
        assert run.finished
        assert any(answers[0][number][name] != [0.0] * len(start[name]) for name in moved)


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_time_limit_that_is_none_is_named(monkeypatch, text):
    monkeypatch.setenv("MMB_TIMEOUT", text)
    message = f"MMB_TIMEOUT: expected a number of seconds, got '{text}'"
    with pytest.raises(ProcessError, match=message), joined(torch.device("cpu")):
        pass
