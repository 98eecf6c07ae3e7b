"""A comparison in several processes ends as a whole at the first interrupt, and continues later."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tiny_runs import TINY, is_free, wait_until


@pytest.mark.skipif(os.name == "nt", reason="a terminal's interrupt, sent to a group of processes")
def test_the_first_interrupt_ends_all_processes(tmp_path):
    sections = {section: TINY[section] for section in ("data", "model")}
    overrides = [f"{name}.{key}={value}" for name, part in sections.items() for key, value in part.items()]
    overrides += ["training.steps=1000000", "training.evaluate_every=100", "training.tensorboard=false"]
    command = [sys.executable, "-m", "mmb", "compare", "--data", "synthetic", "--methods", "ce,pauc"]
    command += ["--seeds", "2", "--jobs", "2", "--output", str(tmp_path), *overrides]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    )
    signal.signal(signal.SIGINT, before)
    paths = [tmp_path / method / "seed-0" for method in ("ce", "pauc")]

    def training():
        return all(any((path / "checkpoints").glob("0*")) for path in paths) or process.poll() is not None

    try:
        wait_until(training)
        assert not any(is_free(path) for path in paths)
        start = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=30)
        seconds = time.monotonic() - start
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert seconds < 20
    assert all(is_free(path) for path in paths)
    assert not (tmp_path / "ce" / "seed-1" / "metrics.jsonl").exists()  # what was queued
