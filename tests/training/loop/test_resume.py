"""Kill a training process at random moments; what is left, resumed, is the undisturbed run bit for bit."""

import random
import signal
import sys
import time

import pytest
import torch

from mmb.cli import main
from mmb.training import METHODS, CheckpointError, Observer, Run, RunError, merge, train
from mmb.training.runs import checkpoint
from mmb.training.runs.log import read_log
from processes import fork_server
from tiny_runs import molecule_recipe, newest_step, tiny_recipe

KILLS = 6
SHORT = {"steps": 12, "evaluate_every": 10, "checkpoint_every": 4, "log_every": 2}


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
        for part in (result, *result.get("branches", {}).values()):
            part.pop("seconds")
        result["versions"].pop("commit", None)  # of a tree that others may work in
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
        assert one == other or (one != one and other != other)  # NaN


def resume_by_command(path):
    sys.exit(main(["resume", str(path), "--json"]))


def test_kills_leave_no_trace(tmp_path):
    training = {"steps": 100, "evaluate_every": 20, "checkpoint_every": 7, "keep_checkpoints": 3}
    recipe = tiny_recipe("pauc", training=training)
    undisturbed, killed = (Run.create(tmp_path / name, recipe) for name in ("undisturbed", "killed"))
    train(undisturbed)
    per_step = undisturbed.result()["seconds"] / recipe.training.steps
    moments, kills = random.Random(0), []
    while not killed.finished:
        process = fork_server().Process(target=resume_by_command, args=(killed.path,))
        process.start()
        if len(kills) < KILLS:
            before, deadline = newest_step(killed), time.monotonic() + 60
            if len(kills) % 4:  # three of four while training, one while starting
                while newest_step(killed) <= before and process.is_alive() and time.monotonic() < deadline:
                    time.sleep(0.001)
            process.join(moments.uniform(0, 10) * per_step)
            if process.is_alive():
                process.kill()
                kills.append(newest_step(killed))
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
    assert len(kills) == KILLS
    assert len(set(kills)) > KILLS // 2  # at many different moments
    assert_same_run(undisturbed, killed)


class StopAt(Observer):
    """Raises as a crash would, after `step` steps."""

    def __init__(self, step):
        self.step = step
        self.said = []

    def stepped(self, step, numbers):
        if step >= self.step:
            raise InterruptedError

    def say(self, message):
        self.said.append(message)


def crash(run, step):
    with pytest.raises(InterruptedError):
        train(run, StopAt(step))


@pytest.mark.parametrize("kind", ["rows", "tasks"])
@pytest.mark.parametrize("method", [*METHODS, "mmb.auc:MSVRAveragePrecision"])
def test_every_method_resumes_exactly(tmp_path, method, kind):
    recipe = tiny_recipe(method, sampler={"kind": kind}, training=SHORT)
    undisturbed, stopped = (Run.create(tmp_path / name, recipe) for name in ("undisturbed", "stopped"))
    train(undisturbed)
    crash(stopped, 10)  # after the checkpoint of step 8, in the middle of an epoch
    train(Run.open(stopped.path))
    assert_same_run(undisturbed, stopped)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": {"name": "momentum", "clip": 0.5}, "schedule": {"name": "cosine", "warmup": 3}},
        {
            "optimizer": {"name": "sgd"},
            "schedule": {"name": "step", "milestones": [2, 4], "decay_blocks": True},
        },
        {"training": {"patience": 2, "precision": "bfloat16", "warm_start": True}},
        {"pretrain": {"method": "ce", "training": {"steps": 12}}},
        {"optimizer": {"lr_encoder": 1e-4}},
    ],
    ids=["momentum", "sgd", "early stopping", "two phases", "step size of the encoder"],
)
def test_every_setting_resumes_exactly(tmp_path, changes):
    recipe = tiny_recipe("pauc", **merge({"training": {"steps": 24}}, changes))
    undisturbed, stopped = (Run.create(tmp_path / name, recipe) for name in ("undisturbed", "stopped"))
    train(undisturbed)
    crash(stopped, 8)
    crash(stopped, 16)
    train(stopped)
    assert_same_run(undisturbed, stopped)


@pytest.mark.parametrize("method", ["pauc", "auc-ct"])
def test_graphs_with_batch_norm_resume_exactly(tmp_path, method):
    pytest.importorskip("rdkit")
    settings = {"sampler": {"kind": "tasks"}, "training": {"batch_norm": "recalibrate"}}
    recipe = molecule_recipe(tmp_path, method, **settings)
    undisturbed, stopped = (Run.create(tmp_path / name, recipe) for name in ("undisturbed", "stopped"))
    train(undisturbed)
    crash(stopped, 8)
    train(stopped)
    assert_same_run(undisturbed, stopped)


class SignalAt(Observer):
    """Sends signals to this process after some steps."""

    def __init__(self, step, *numbers):
        self.step, self.numbers = step, numbers

    def stepped(self, step, numbers):
        if step == self.step:
            for number in self.numbers:
                signal.raise_signal(number)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_ends_training_with_a_checkpoint_of_that_step(tmp_path, number, error):
    recipe = tiny_recipe("pauc", training=SHORT)
    undisturbed, stopped = (Run.create(tmp_path / name, recipe) for name in ("undisturbed", "stopped"))
    train(undisturbed)
    handler = signal.getsignal(number)
    for step in (2, 6, 12):  # without a checkpoint otherwise, and at the end
        with pytest.raises(error):
            train(stopped, SignalAt(step, number))
        assert newest_step(stopped) == step
        assert signal.getsignal(number) is handler
    train(stopped)
    assert_same_run(undisturbed, stopped)


@pytest.mark.usefixtures("interruptible")
def test_a_second_signal_ends_training_at_once(tmp_path):
    run = Run.create(tmp_path / "run", tiny_recipe(training=SHORT))
    with pytest.raises(KeyboardInterrupt):
        train(run, SignalAt(6, signal.SIGINT, signal.SIGINT))
    assert newest_step(run) == 4
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    train(run, SignalAt(8, signal.SIGINT))  # which this process ignores
    assert run.finished


def test_a_damaged_newest_checkpoint_falls_back_saying_so(tmp_path):
    recipe = tiny_recipe(training={"steps": 20})
    undisturbed, damaged = (Run.create(tmp_path / name, recipe) for name in ("undisturbed", "damaged"))
    train(undisturbed)
    crash(damaged, 16)
    newest = checkpoint.steps(damaged.checkpoints)[-1]
    (newest / "tensors.safetensors").write_bytes(b"nonsense")
    observer = StopAt(10**9)
    train(damaged, observer)
    assert len(observer.said) == 1
    assert f"{newest} is damaged" in observer.said[0]
    assert_same_run(undisturbed, damaged)


def test_a_full_disk_ends_training_with_the_last_checkpoint_intact(tmp_path, monkeypatch):
    recipe = tiny_recipe(training=SHORT)
    undisturbed, run = (Run.create(tmp_path / name, recipe) for name in ("undisturbed", "full"))
    train(undisturbed)
    real, written = checkpoint.sync, []

    def sync_until_full(path):
        written.append(path)
        if len(written) > 8:
            raise OSError(28, "No space left on device")
        real(path)

    monkeypatch.setattr(checkpoint, "sync", sync_until_full)
    with pytest.raises(CheckpointError, match="No space"):
        train(run)
    monkeypatch.undo()
    assert not run.finished
    train(run)
    assert_same_run(undisturbed, run)


def test_one_process_at_a_time(tmp_path):
    run = Run.create(tmp_path / "run", tiny_recipe(training=SHORT))
    with run.locked(), pytest.raises(RunError, match="another process"):
        train(run)
    train(run)
    assert run.finished
