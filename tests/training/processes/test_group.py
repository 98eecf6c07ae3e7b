"""What happens when processes die, hang or disagree."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
import torch
from torch.distributed import distributed_c10d
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from mmb.cli import main
from mmb.training import Run, train
from mmb.training.loop import setup, step
from mmb.training.processes.group import ProcessError, Ranks, joined
from mmb.training.runs import checkpoint
from mmb.training.runs.log import read_log
from processes import in_processes, in_turn
from tiny_runs import newest_step, tiny_recipe, wait_until


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_time_limit_that_is_not_a_number_is_refused(monkeypatch, text):
    monkeypatch.setenv("MMB_TIMEOUT", text)
    with pytest.raises(ProcessError, match=rf"MMB_TIMEOUT.*{text}"), joined(torch.device("cpu")):
        pass


def train_here(path):
    return train(Run.open(path))["best_step"]


def command_that_dies(recipe, path):
    """`mmb train`; at the first attempt, the main process is killed in the middle of training."""
    torch.set_num_threads(1)
    os.environ["MMB_TIMEOUT"] = "60"

    def die():
        wait_until(lambda: newest_step(Run(Path(path), None)) >= 20)
        os.kill(os.getpid(), signal.SIGKILL)

    if os.environ["RANK"] == os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        threading.Thread(target=die, daemon=True).start()
    assert main(["train", recipe, "--output", path, "--json"]) == 0


def test_a_killed_process_under_torchrun_leaves_no_trace(tmp_path):
    """Started again by what torchrun starts its processes with, the run ends as if nothing had happened."""
    chosen = {"steps": 80, "evaluate_every": 40, "checkpoint_every": 10, "log_every": 20}
    undisturbed = Run.create(tmp_path / "undisturbed", tiny_recipe("pauc", training=chosen))
    in_processes(2, train_here, undisturbed.path)
    killed = Run(tmp_path / "killed", undisturbed.recipe)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        run_id="killed",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=1,
        start_method="forkserver",
        signals_to_handle="",
        logs_specs=DefaultLogsSpecs(log_dir=str(tmp_path / "logs"), redirects=Std.ALL),
    )
    elastic_launch(config, command_that_dies)(str(undisturbed.path / "recipe.yaml"), str(killed.path))
    results = [run.result() for run in (undisturbed, killed)]
    logs = [read_log(run.path) for run in (undisturbed, killed)]
    for record in [*results, *logs[0], *logs[1]]:
        record.pop("seconds", None)
        record.pop("versions", None)
    assert results[0] == results[1]
    assert logs[0] == logs[1]
    attempts = sorted(path.name for path in tmp_path.glob("logs/*/attempt_*"))
    assert attempts == ["attempt_0", "attempt_1"]
    output = "".join(path.read_text() for path in tmp_path.glob("logs/*/*/*/stdout.log"))
    assert output.count('"best_step"') == 1  # one process speaks


def hang(path):
    """The second process stops answering at some step, until the first has given up."""
    real, steps, gave_up = step.Step.__call__, count(), Path(path) / "gave up"

    def step_or_hang(self, batch):
        if next(steps) == 3:
            distributed_c10d._set_pg_timeout(timedelta(seconds=0.5))
            if Ranks.of_this_process().rank == 1:
                wait_until(gave_up.exists)
        return real(self, batch)

    step.Step.__call__ = step_or_hang
    try:
        train(Run.open(path))
    except ProcessError as error:
        gave_up.touch()
        return str(error)
    return "finished"  # as it would if the others had waited


@pytest.mark.parametrize("kind", ["rows", "tasks"])
def test_a_process_that_hangs_is_named_in_time(tmp_path, kind):
    run = Run.create(tmp_path / "run", tiny_recipe("pauc", sampler={"kind": kind}))
    start = time.monotonic()
    message = in_processes(2, hang, run.path)[0]
    assert time.monotonic() - start < 60  # the time limit of the group
    assert "process 0 of 2" in message
    assert "in time" in message
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


def test_processes_that_disagree_stop_at_the_start_and_say_on_what(tmp_path):
    run = Run.create(tmp_path / "run", tiny_recipe("auc"))
    for recipe, data in in_processes(
        2, in_turn, [(disagree, run.path, about) for about in ("recipe", "data")]
    ):
        assert "optimizer.lr: process 0 has 0.003, process 1 has 0.25" in recipe
        assert "the labels: process 0 has" in data
    assert not checkpoint.steps(run.checkpoints)
