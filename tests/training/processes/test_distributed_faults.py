"""What happens when processes die, hang or disagree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mmb.training import Run, train
from mmb.training.loop import setup, step
from mmb.training.processes.group import ProcessError, Ranks
from mmb.training.runs import checkpoint
from mmb.training.runs.log import read_log
from processes import in_processes
from tiny_runs import newest_step, tiny_recipe


def train_here(path):
    return train(Run.open(path))["best_step"]


def workers_of(process) -> list[int]:
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in found]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the workers as Linux shows them")
def test_a_killed_worker_under_torchrun_leaves_no_trace(tmp_path):
    """Killed in the middle, started again by torchrun, the run ends as if nothing had happened."""
    chosen = {"steps": 600, "evaluate_every": 100, "checkpoint_every": 20, "log_every": 50}
    recipe = tiny_recipe("pauc", training=chosen)
    undisturbed = Run.create(tmp_path / "undisturbed", recipe)
    in_processes(2, train_here, undisturbed.path)
    killed = Run(tmp_path / "killed", recipe)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = ["-m", "mmb", "train", str(undisturbed.path / "recipe.yaml"), "--output", str(killed.path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MMB_TIMEOUT": "60"}
    process = subprocess.Popen(
        [*torchrun, "--max-restarts", "1", *command, "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while newest_step(killed) < 100 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()
    os.kill(workers_of(process)[0], signal.SIGKILL)  # the main one
    at = newest_step(killed)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert 100 <= at < 600
    results = [run.result() for run in (undisturbed, killed)]
    logs = [read_log(run.path) for run in (undisturbed, killed)]
    for record in [*results, *logs[0], *logs[1]]:
        record.pop("seconds", None)
        record.pop("versions", None)
    assert results[0] == results[1]
    assert logs[0] == logs[1]
    assert output.count('"best_step"') == 1  # one process speaks


def hang(path):
    """The second process stops answering at some step."""
    real, count = step.Step.__call__, []

    def step_or_sleep(self, batch):
        count.append(1)
        if len(count) == 4 and Ranks.of_this_process().rank == 1:
            time.sleep(13)
        return real(self, batch)

    step.Step.__call__ = step_or_sleep
    try:
        train(Run.open(path))
    except ProcessError as error:
        return str(error)
    return "finished"  # as it would if the others had waited for it to wake up


@pytest.mark.parametrize("kind", ["rows", "tasks"])
def test_a_process_that_hangs_is_named_in_time(tmp_path, kind):
    run = Run.create(tmp_path / "run", tiny_recipe("pauc", sampler={"kind": kind}))
    message = in_processes(2, hang, run.path, timeout=6)[0]
    assert "process 0 of 2: another process did not answer in time" in message
    assert "mmb resume" in message
    assert not run.finished


def disagree(path, about):
    run = Run.open(path)
    if Ranks.of_this_process().rank == 1:
        if about == "recipe":
            run = Run(run.path, replace(run.recipe, optimizer=replace(run.recipe.optimizer, lr=0.25)))
        else:
            load = setup.load_data

            def load_another(section):
                data = load(section)
                data.labels[0, 0] = 1 - data.labels[0, 0].clamp(min=0)
                return data

            setup.load_data = load_another
    try:
        train(run)
    except ProcessError as error:
        return str(error)
    return "finished"


@pytest.mark.parametrize(
    ("about", "named"),
    [
        ("recipe", "optimizer.lr: process 0 has 0.001, process 1 has 0.25"),
        ("data", "the labels: process 0 has"),
    ],
)
def test_processes_that_disagree_stop_at_the_start_and_say_on_what(tmp_path, about, named):
    run = Run.create(tmp_path / "run", tiny_recipe("auc"))
    for message in in_processes(2, disagree, run.path, about):
        assert f"processes disagree on {named}" in message
    assert not checkpoint.steps(run.checkpoints)
