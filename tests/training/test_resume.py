"""Kill a training process at random moments; what is left, resumed, is the undisturbed run bit for bit."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch

from mmb.training import Run, checkpoint, train
from mmb.training.log import read_log
from tiny_runs import tiny_recipe

LONG = {"training": {"steps": 400, "evaluate_every": 20, "checkpoint_every": 7, "keep_checkpoints": 3}}


def without_time(records):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in records]


def assert_same_run(one, other):
    """Same weights, block state, optimizer, generators, log and result; only the clock may differ."""
    states = [checkpoint.load(checkpoint.steps(run.checkpoints)[-1]) for run in (one, other)]
    for state in states:
        state["progress"].pop("seconds")
        state["progress"].pop("log_position")  # times in the log have different lengths
    assert_same_tree(*states)
    assert without_time(read_log(one.path)) == without_time(read_log(other.path))
    results = [run.result() for run in (one, other)]
    for result in results:
        result.pop("seconds")
    assert results[0] == results[1]
    predictors = [(run.path / "predictor.json").read_text() for run in (one, other)]
    assert predictors[0] == predictors[1]


def assert_same_tree(one, other):
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same_tree(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same_tree(*pair)
    else:
        assert one == other


def newest_step(run):
    paths = checkpoint.steps(run.checkpoints)
    return int(paths[-1].name) if paths else -1


@pytest.mark.slow
def test_twenty_kills_leave_no_trace(tmp_path):
    # A fork server that has imported everything makes a real process, to be killed, in milliseconds.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mmb.training", "torch._dynamo", "safetensors.torch", "jsonargparse"])
    recipe = tiny_recipe("pauc", **LONG)
    undisturbed = Run.create(tmp_path / "undisturbed", recipe)
    process = context.Process(target=train, args=(undisturbed,))
    process.start()
    process.join()
    assert process.exitcode == 0
    per_step = undisturbed.result()["seconds"] / recipe.training.steps

    killed = Run.create(tmp_path / "killed", recipe)
    moments, kills = random.Random(0), []
    while not killed.finished:
        process = context.Process(target=train, args=(killed,))
        process.start()
        if len(kills) < 20:
            before, deadline = newest_step(killed), time.monotonic() + 20
            if len(kills) % 4:  # three of four while training, one while starting
                while newest_step(killed) <= before and process.is_alive() and time.monotonic() < deadline:
                    time.sleep(0.001)
            process.join(moments.uniform(0, 20) * per_step)
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
                kills.append(newest_step(killed))
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
    assert len(kills) == 20
    assert len(set(kills)) > 10  # at many different moments
    assert_same_run(undisturbed, killed)
