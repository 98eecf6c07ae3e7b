"""Comparing in several processes: none outlives the one that waits for it, and one that is killed is told."""

import os
import signal
import subprocess
import sys

import pytest

from tiny_runs import TINY, is_free, wait_until

LONG = ["training.steps=1000000", "training.evaluate_every=100", "training.tensorboard=false"]


def overrides():
    return [
        f"{section}.{key}={value}" for section in ("data", "model") for key, value in TINY[section].items()
    ]


@pytest.fixture
def comparison(tmp_path):
    """A comparison of two runs in two processes, both of which are training."""
    command = [sys.executable, "-m", "mmb", "compare", "--data", "synthetic", "--methods", "ce,pauc"]
    command += ["--seeds", "1", "--jobs", "2", "--output", str(tmp_path / "c"), *overrides(), *LONG]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    logs = [tmp_path / "c" / method / "seed-0" / "metrics.jsonl" for method in ("ce", "pauc")]
    wait_until(lambda: all(log.exists() for log in logs) or process.poll() is not None)
    assert process.poll() is None, process.communicate()[1]
    yield process, [log.parent for log in logs]
    process.kill()
    process.communicate()


def children(process):
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        found = [int(number) for number in file.read().split()]
    return [pid for pid in found if "spawn_main" in open(f"/proc/{pid}/cmdline").read()]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_one_that_waits_for_it(comparison, how):
    process, runs = comparison
    assert not any(is_free(run) for run in runs)
    process.send_signal(how)
    wait_until(lambda: all(is_free(run) for run in runs))


def test_a_process_that_is_killed_is_told(comparison):
    process, runs = comparison
    os.kill(children(process)[0], signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "a process that trained was killed" in err
    assert all(is_free(run) for run in runs)
