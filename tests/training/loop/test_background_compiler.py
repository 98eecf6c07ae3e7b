"""Another process compiles what it is sent, and nothing of it is left when it is not needed."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from mmb.training.loop import background_compiler as module
from mmb.training.loop.background_compiler import BackgroundCompiler, Work
from mmb.training.loop.kept_kernels import is_kept, kept_kernels
from mmb.training.loop.setup import make_setup
from tiny_runs import tiny_recipe, wait_until

TESTS = str(Path(__file__).parents[2])


class NotThere(torch.nn.Module):
    """A network that another process cannot make."""

    def __reduce__(self):
        return int, ("a network",)


@pytest.fixture(autouse=True)
def own_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("MMB_DATA", str(tmp_path))


def work(model=None):
    setup = make_setup(tiny_recipe("ce"))
    return Work(model or setup.model, setup.objective, next(iter(setup.feed)), True, setup.precision)


def test_an_error_of_the_process_is_known():
    with closing(BackgroundCompiler("step", work(NotThere()))) as compiler:
        wait_until(lambda: not compiler.running)
        assert "int() with base 10: 'a network'" in compiler.problem()
    assert not is_kept("step")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_killed_is_known(number, tmp_path):
    (tmp_path / "compiled").mkdir()
    with (
        FileLock(tmp_path / "compiled" / "step.lock"),
        closing(BackgroundCompiler("step", work())) as compiler,
    ):
        os.kill(compiler._process.pid, number)
        wait_until(lambda: not compiler.running)
        assert f"ended with {-number}" in compiler.problem()


def test_what_another_process_compiled_is_not_compiled_again(tmp_path):
    (tmp_path / "compiled").mkdir()
    with closing(BackgroundCompiler("step", work(NotThere()))) as compiler:
        with kept_kernels("step"):
            assert compiler.running
        wait_until(lambda: not compiler.running)
        assert compiler.problem() is None


def test_what_cannot_be_sent_is_an_error():
    own = work()
    own.model.own = lambda: None
    with pytest.raises(AttributeError, match="lambda"):
        BackgroundCompiler("step", own)


@pytest.mark.parametrize(("free", "reserved"), [(9e9, 4e9), (9e9, 5e9)])
def test_a_gpu_must_have_room_for_another_process(free, reserved, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (int(free), int(10e9)))
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda _: int(reserved))
    if reserved > free / 2:
        with pytest.raises(MemoryError, match="no room"):
            module._room(torch.device("cuda"))
    else:
        assert module._room(torch.device("cuda")) == free / 2
    assert module._room(torch.device("cpu")) is None


PARENT = """
import sys, time
sys.path.insert(0, sys.argv[1])
from mmb.training.loop.background_compiler import BackgroundCompiler, Work
from mmb.training.loop.setup import make_setup
from tiny_runs import tiny_recipe

setup = make_setup(tiny_recipe("ce"))
work = Work(setup.model, setup.objective, next(iter(setup.feed)), True, setup.precision)
compiler = BackgroundCompiler("step", work)
compiler._sender.join()
print(compiler._process.pid, flush=True)
time.sleep(600)
"""


def gone(number):
    """Whether a process has ended, even if nobody has asked how."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("how", ["killed", "closed"])
def test_it_ends_with_the_process_that_started_it(how, tmp_path):
    """While it waits for a third one, which compiles."""
    (tmp_path / "compiled").mkdir()
    with FileLock(tmp_path / "compiled" / "step.lock"):
        if how == "closed":
            compiler = BackgroundCompiler("step", work())
            number = compiler._process.pid
            assert compiler.running
            compiler.close()
        else:
            words = [sys.executable, "-c", PARENT, TESTS]
            with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
                number = int(parent.stdout.readline())
                assert not gone(number)
                parent.kill()
        wait_until(lambda: gone(number))


SWITCH = """
import sys, torch
from contextlib import closing
sys.path.insert(0, sys.argv[1])
from mmb.training.loop import setup as module
from mmb.training.loop.make_step import WORTH_COMPILING, make_step
from mmb.training.loop.randomness import own_randomness
from mmb.trees import tensors
from on_host import HostRecorder
from tiny_runs import tiny_recipe
from torch._dynamo.utils import counters

module.decide_capture = lambda *_: (True, None)
method, device = sys.argv[2:]
recipe = tiny_recipe(
    method,
    model={"dropout": 0.2},
    sampler={"kind": "tasks" if method == "auc-ct" else "rows"},
    optimizer={"name": "momentum", "lr": 0.1, "momentum": 0.5},
    training={"capture": "auto", "steps": WORTH_COMPILING, "device": device},
)
for steps in (WORTH_COMPILING - 1, WORTH_COMPILING):
    with own_randomness(0, torch.device(device)):
        setup = module.make_setup(recipe)

    def state():
        parts = (setup.model.state_dict(), setup.objective.state_dict(), *setup.optimizer.state.values())
        return list(tensors([dict(part) for part in parts]))

    losses, said, missed = [], [], 0
    options = {} if device == "cuda" else {"recorder": lambda _: HostRecorder(state)}
    step = make_step(setup, said.append, steps, note=said.append, **options)
    with closing(step), own_randomness(1, torch.device(device)):
        for number, batch in zip(range(14), setup.feed):
            if number == 7 and steps == WORTH_COMPILING:
                assert step._compiler.problem() is None  # after it has ended
                missed = counters["inductor"]["fxgraph_cache_miss"]
            setup.set_step_sizes(number)
            losses.append(float(step(batch)["loss"]))
    print(*losses)
print("; ".join(said), counters["inductor"]["fxgraph_cache_miss"] - missed, sep="; ")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("method", "device"), [("pauc", "cpu"), ("ce", "cuda"), ("auc-ct", "cuda")])
def test_a_step_switches_to_what_was_compiled_elsewhere(method, device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    if device == "cpu" and shutil.which("g++") is None:
        pytest.skip("compiles for the CPU")
    words = [sys.executable, "-c", SWITCH, TESTS, method, device]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    *losses, said = done.stdout.splitlines()
    assert said.split("; ") == [
        "steps are captured, and compiled in the background",
        "steps are compiled, from step 8 on",
        "0",  # kernels compiled here
    ]
    plain, switched = (torch.tensor([float(word) for word in line.split()]) for line in losses)
    torch.testing.assert_close(switched, plain, rtol=1e-3, atol=1e-4)
