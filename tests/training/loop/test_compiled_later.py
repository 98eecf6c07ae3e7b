"""A step that is compiled while it trains: the same training, whatever becomes of the compiling."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from mmb.training import Run, train
from mmb.training.loop import compiled_later
from mmb.training.loop.kept_kernels import kept_kernels
from mmb.training.loop.make_step import WORTH_COMPILING, make_step
from mmb.training.loop.observer import Observer
from mmb.training.loop.setup import make_setup
from mmb.training.runs import checkpoint
from mmb.trees import tensors
from on_host import HostRecorder
from tiny_runs import tiny_recipe

STEPS = 16
COMPILING = "steps are captured, and compiled in the background"


class Compiler:
    """In place of the process: `ready` is the number of looks after which it has ended, with a `problem`."""

    def __init__(self, ready=1, problem=None, seconds=0.0):
        self.ready, self.found, self.seconds = ready, problem, seconds
        self.works, self.closed = [], 0

    def __call__(self, name, work):
        self.works.append(work)
        return self

    @property
    def running(self):
        self.ready -= 1
        return self.ready >= 0

    def problem(self):
        return self.found

    def close(self):
        self.closed += 1


class Compiled(torch.nn.Module):
    """In place of `torch.compile`: the same network, which counts, and fails if told to."""

    calls = 0
    broken = False

    def __init__(self, model, **_):
        super().__init__()
        self.model = model

    def forward(self, inputs):
        Compiled.calls += 1
        if Compiled.broken:
            raise RuntimeError("no compiler here")
        return self.model(inputs)


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("MMB_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(torch, "compile", Compiled)
    monkeypatch.setattr("mmb.training.loop.setup.decide_capture", lambda *_: (True, None))
    monkeypatch.setattr(Compiled, "calls", 0)
    monkeypatch.setattr(Compiled, "broken", False)


def trained(
    monkeypatch,
    compiler=None,
    method="pauc",
    left=WORTH_COMPILING,
    batches=None,
    recorder=HostRecorder,
    **changes,
):
    """Losses and state after some of the first or last steps of a run; without a compiler, captured alone."""
    torch.manual_seed(0)
    steps = WORTH_COMPILING if compiler else STEPS
    recipe = tiny_recipe(
        method,
        optimizer={"name": "momentum", "lr": 0.1, "momentum": 0.5},
        training={"capture": "auto", "steps": steps},
        **changes,
    )
    setup, said, noted = make_setup(recipe), [], []
    monkeypatch.setattr(compiled_later, "BackgroundCompiler", compiler)

    def state():
        return (*setup.model.state_dict().values(), *setup.objective.state_dict().values())

    def changed():
        return (*state(), *tensors([dict(part) for part in setup.optimizer.state.values()]))

    step = make_step(setup, said.append, recorder=lambda _: recorder(changed), note=noted.append)
    if compiler:
        step._taken = steps - left
    losses = [step(batch)["loss"] for batch, _ in zip(batches or setup.feed, range(STEPS), strict=False)]
    return [torch.stack(losses), *state()], SimpleNamespace(step=step, said=said, noted=noted)


@pytest.mark.parametrize("method", ["ce", "pauc", "auc-ct-heads"])
def test_a_switch_changes_nothing_but_kernels(method, monkeypatch):
    plain, _ = trained(monkeypatch, method=method)
    compiler = Compiler(ready=3)
    found, run = trained(monkeypatch, compiler, method)
    torch.testing.assert_close(found, plain, rtol=0, atol=0)
    assert run.step.captured.recorded
    assert not run.said
    assert run.noted == [COMPILING, "steps are compiled, from step 9 on"]  # four to record, the rest to wait
    assert (len(compiler.works), compiler.closed) == (1, 1)
    assert Compiled.calls > 0


def test_kept_kernels_are_used_at_once(monkeypatch):
    compiler = Compiler()
    _, run = trained(monkeypatch, compiler)
    with kept_kernels(run.step.name(compiler.works[0].batch)):
        pass
    plain, _ = trained(monkeypatch)
    found, run = trained(monkeypatch, Compiler())
    torch.testing.assert_close(found, plain, rtol=0, atol=0)
    assert run.step.compiled
    assert (run.said, run.noted) == ([], [])


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        (Compiler(problem="out of memory"), "out of memory"),
        (Compiler(ready=99, seconds=1801.0), "it takes more than 30 minutes"),
    ],
)
def test_what_cannot_be_compiled_stays_captured(compiler, reason, monkeypatch):
    plain, _ = trained(monkeypatch)
    found, run = trained(monkeypatch, compiler)
    torch.testing.assert_close(found, plain, rtol=0, atol=0)
    assert run.said == [f"steps are captured, but not compiled: {reason}"]
    assert run.noted == [COMPILING]
    assert run.step.captured.recorded
    assert (Compiled.calls, compiler.closed) == (0, 1)


def test_what_fails_here_alone_is_captured_again_without(monkeypatch):
    plain, _ = trained(monkeypatch)
    monkeypatch.setattr(Compiled, "broken", True)
    found, run = trained(monkeypatch, Compiler())
    torch.testing.assert_close(found, plain, rtol=0, atol=0)
    assert run.said == ["steps are captured, but not compiled: no compiler here"]
    assert run.noted == [COMPILING]
    assert run.step.captured.recorded


def test_compiled_kernels_that_wait_are_left_again(monkeypatch):
    plain, _ = trained(monkeypatch)
    waits = iter([False, True, False])
    found, run = trained(
        monkeypatch, Compiler(), recorder=lambda state: HostRecorder(state, waits=next(waits))
    )
    torch.testing.assert_close(found, plain, rtol=0, atol=0)
    assert len(run.said) == 1
    assert "not compiled: it waits for the device" in run.said[0]
    assert run.step.captured.recorded


def test_what_cannot_be_sent_is_compiled_here(monkeypatch):
    def refuse(name, work):
        raise MemoryError("the GPU has no room\nand more lines")

    plain, _ = trained(monkeypatch)
    found, run = trained(monkeypatch, refuse)
    torch.testing.assert_close(found, plain, rtol=0, atol=0)
    assert run.noted == [
        "steps are compiled now, which takes up to a minute: the GPU has no room",
        "steps are compiled, from step 5 on",
    ]


def test_the_last_steps_are_not_worth_a_switch(monkeypatch):
    compiler = Compiler(ready=3)
    _, run = trained(monkeypatch, compiler, left=compiled_later.WORTH_SWITCHING + 6)
    assert (run.said, run.noted, compiler.closed) == ([], [COMPILING], 1)
    assert Compiled.calls == 0


def test_a_switch_waits_for_a_batch_of_the_usual_shape(monkeypatch):
    usual = [batch for batch, _ in zip(make_setup(tiny_recipe()).feed, range(STEPS), strict=False)]
    rare = [replace(batch, weights=None) for batch in usual]
    batches = [rare[0], *usual[1:7], *rare[7:10], *usual[10:]]
    plain, _ = trained(monkeypatch, batches=batches)
    compiler = Compiler(ready=0)
    found, run = trained(monkeypatch, compiler, batches=batches)
    torch.testing.assert_close(found, plain, rtol=0, atol=0)
    assert run.noted == [COMPILING, "steps are compiled, from step 11 on"]
    for batch in (compiler.works[0].batch, *run.step.captured.inputs):
        assert batch.weights is not None


def test_a_switch_is_not_what_a_step_usually_takes(monkeypatch):
    seen = []
    taken = compiled_later.CompiledLater.__call__

    def noted(step, batch):
        found = taken(step, batch)
        seen.append(step.unusual)
        return found

    monkeypatch.setattr(compiled_later.CompiledLater, "__call__", noted)
    trained(monkeypatch, Compiler(ready=3))
    assert [number for number, unusual in enumerate(seen, 1) if unusual] == [5, 9, 10, 11, 12]


class Crash(Observer):
    """Ends training at a step, as a crash would."""

    def __init__(self, step):
        self.step = step

    def stepped(self, step, numbers):
        if step == self.step:
            raise InterruptedError


def as_on_a_gpu(monkeypatch, compiler):
    """Let runs of the recipe below be compiled, by `compiler`."""
    monkeypatch.setattr(compiled_later, "BackgroundCompiler", compiler)
    monkeypatch.setattr(compiled_later, "WORTH_SWITCHING", 0)
    monkeypatch.setattr("mmb.training.loop.make_step.WORTH_COMPILING", 1)

    def make(setup, *rest, **options):
        def state():
            parts = (setup.model.state_dict(), setup.objective.state_dict(), *setup.optimizer.state.values())
            return list(tensors([dict(part) for part in parts]))

        return make_step(setup, *rest, **options, recorder=lambda _: HostRecorder(state))

    monkeypatch.setattr("mmb.training.loop.loop.make_step", make)


def short_run(path):
    training = {"capture": "auto", "steps": 24, "log_every": 1, "checkpoint_every": 4}
    optimizer = {"name": "momentum", "lr": 0.1}
    return Run.create(path, tiny_recipe("pauc", optimizer=optimizer, training=training))


@pytest.mark.parametrize("crashes", [False, True])
def test_the_process_ends_with_training(crashes, monkeypatch, tmp_path):
    compiler = Compiler(ready=1000)
    as_on_a_gpu(monkeypatch, compiler)
    run = short_run(tmp_path / "run")
    if crashes:
        with pytest.raises(InterruptedError):
            train(run, Crash(8))
    else:
        train(run)
    assert (len(compiler.works), compiler.closed) == (1, 1)


@pytest.mark.parametrize("step", [6, 14])  # before the switch at step 10, and after it
def test_a_run_that_is_killed_resumes_to_the_same_weights(step, monkeypatch, tmp_path):
    as_on_a_gpu(monkeypatch, lambda *arguments: Compiler(ready=4)(*arguments))
    undisturbed, killed = (short_run(tmp_path / name) for name in ("undisturbed", "killed"))
    train(undisturbed)
    with pytest.raises(InterruptedError):
        train(killed, Crash(step))
    train(killed)
    assert Compiled.calls > 0
    found, expected = (checkpoint.load(run.checkpoints / "00000024")["job"] for run in (killed, undisturbed))
    for part in ("model", "objective"):
        torch.testing.assert_close(found[part], expected[part], rtol=0, atol=0)
