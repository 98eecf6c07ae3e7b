"""Training in many processes: the path of one, from any checkpoint, and clear errors when one is lost."""

from __future__ import annotations

import shutil

import pytest
import torch

from mmb.training import METHODS, Run, checkpoint, loop, train
from mmb.training.distributed import Ranks
from mmb.training.evaluate import predict_logits
from mmb.training.job import make_job
from mmb.training.log import read_log
from mmb.training.randomness import own_randomness
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


class Stopped(Exception):
    pass


def train_until(path, step=None):
    """Train, or crash right after the checkpoint of a step; returns the block state that was started from."""
    real_save, real_load, started = loop.save, loop.Job.load_state_dict, []

    def save_and_stop(run, job, progress, log):
        real_save(run, job, progress, log)
        if progress.step == step:
            raise Stopped

    def load_and_look(job, state):
        real_load(job, state)
        own = {name: value.tolist() for name, value in job.objective.state_dict().items()}
        moments = [entry for index, entry in job.optimizer.state_dict()["state"].items()][-1]
        started.append((own, moments["exp_avg"].tolist()))

    loop.save, loop.Job.load_state_dict = save_and_stop, load_and_look
    try:
        result = train(Run.open(path))
        result.pop("seconds")
        return started, result
    except Stopped:
        return started, None
    finally:
        loop.save, loop.Job.load_state_dict = real_save, real_load


@pytest.mark.parametrize(("method", "kind"), [("pauc", "rows"), ("auc-ct", "tasks"), ("sopa-s", "tasks")])
def test_resumed_by_another_number_of_processes(tmp_path, method, kind):
    """Saved by four: the same by four bit for bit; by two or one, from bit-identical block state."""
    recipe = tiny_recipe(method, **SHORT, sampler={"kind": kind}, data={"tasks": 7})
    undisturbed, stopped = (Run.create(tmp_path / name, recipe) for name in ("undisturbed", "stopped"))
    expected = in_processes(4, train_until, undisturbed.path)[0][1]
    in_processes(4, train_until, stopped.path, 4)
    folders = {world: tmp_path / f"by-{world}" for world in (4, 2, 1)}
    for folder in folders.values():
        shutil.copytree(stopped.path, folder)
    answers = {4: in_processes(4, train_until, folders[4]), 2: in_processes(2, train_until, folders[2])}
    answers[1] = [train_until(folders[1])]
    assert all(result == expected for _, result in answers[4])  # bit for bit
    blocks = {world: _join(starts, method) for world, starts in answers.items()}
    assert blocks[4] == blocks[2] == blocks[1]
    for world in (2, 1):
        for metric, value in expected["test"].items():
            assert answers[world][0][1]["test"][metric] == pytest.approx(value, abs=2e-3)


def _join(answers, method):
    """Block state of all processes, by task (what is kept per positive: all numbers, in order of size)."""
    states = [started[0] for started, _ in answers]
    names = states[0][0]
    joined_state = {name: [row for own, _ in states for row in own[name]] for name in names}
    if method == "sopa-s":
        return {name: sorted(rows) for name, rows in joined_state.items()}
    return {**joined_state, "moments": [row for _, moments in states for row in moments]}


def scores_of(path, rows):
    ranks, run = Ranks.of_this_process(), Run.open(path)
    with own_randomness(run.recipe.seed, torch.device("cpu")):
        made = make_job(run.recipe, ranks)
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

    def look(run, job, *rest):
        found.append({name: value.tolist() for name, value in job.model.named_buffers()})
        return real(run, job, *rest)

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
