"""How long a user waits for the first step of a captured run, and for steps with compiled kernels.

    python benchmarks/first_step.py
    python benchmarks/first_step.py --small --cases CE  # without a GPU: compiles a small network for the CPU

Every line is of a new process. "Cold" is what a long run does by default where nothing was compiled before:
steps are captured as they are, and another process compiles. "Warm" is the same run again, which finds what
was compiled. "At once" compiles in its first step (`training.capture=true`), where nothing was compiled
before. Times are of the host: making the parts of the run, the first step, all steps up to the recording of
the compiled one, and the part of them in which nothing but that was done.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from statistics import median
from typing import Any, TypeVar
from unittest import mock

import torch

from _timing import machine, print_json, print_table
from mmb.cuda_graphs import WARM_UP, CudaGraph, Recorder
from mmb.data.registry import default_root
from mmb.training import merge
from mmb.training.loop.compiled_later import CompiledLater
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.setup import Setup, make_setup
from mmb.training.loop.step import CapturedStep
from training_speed import CASES, Bench

Found = TypeVar("Found")
KINDS = ("cold", "warm", "at once")
LONG = 1_000_000  # steps of a run, of which the first are taken
TIMED = 50  # steps, after the switch


class OnHost(Recorder):
    """Records nothing: for a look at this script without a GPU."""

    def run(self, step: Callable[[], Found]) -> tuple[Found, bool]:
        """Take the step."""
        return step(), False

    def record(self, step: Callable[[], Found]) -> tuple[Found, Callable[[], None]]:
        """Take the step."""
        return step(), lambda: None

    def recover(self) -> None:
        """Nothing has happened."""


def first_steps(options: argparse.Namespace, case: str, kind: str) -> dict[str, Any]:
    """Seconds of the first steps of a case in this process, and what the compiler found or missed here."""
    from torch._dynamo.utils import counters

    bench, start = Bench(options), time.perf_counter()
    on_gpu = bench.device.type == "cuda"
    method, sampler, objective = CASES[case]
    data = {"name": "_random_sets:molecules"} if options.data == "random" else {"name": options.data}
    fragment = {
        "data": data,
        "model": {"name": "gin", "dropout": 0.1},
        "method": method,
        "sampler": sampler,
        "objective": objective,
        "optimizer": {} if on_gpu else {"name": "momentum"},  # Adam is captured on a GPU alone
    }
    recipe = bench.recipe("graphs", merge(fragment, {"training": {"steps": LONG}}))
    took: list[float] = []
    captured = nullcontext() if on_gpu else mock.patch(f"{make_setup.__module__}.decide_capture", as_on_a_gpu)
    with own_randomness(0, bench.device):
        with captured:
            setup = make_setup(recipe)
        ready, batches = time.perf_counter(), iter(setup.feed)
        with closing(make_step(setup, kind, CudaGraph if on_gpu else lambda _: OnHost())) as step:

            def take() -> None:
                begun = time.perf_counter()
                float(step(next(batches))["loss"])  # which waits for the device
                took.append(time.perf_counter() - begun)

            unusual: list[int] = []
            while not step.compiled:
                take()
                if step.unusual:
                    unusual.append(len(took) - 1)
            done, until = len(took), time.perf_counter() - ready
            for _ in range(TIMED):
                take()
    switch = {"cold": unusual[1:], "warm": unusual}.get(kind, range(done))  # the first is to start to compile
    usual = sorted(set(range(WARM_UP + 1, done)) - set(unusual))
    compiler: dict[str, dict[str, int]] = counters
    return {
        "setup": ready - start,
        "first": took[0],
        "until": until,
        "steps": done,
        "pause": sum(took[number] for number in switch),
        "ms_before": 1e3 * median(took[number] for number in usual) if usual else None,
        "ms_after": 1e3 * median(took[done:]),
        "misses": _count(compiler, "miss"),
        "hits": _count(compiler, "hit"),
    }


def as_on_a_gpu(*_: object) -> tuple[bool, str | None]:
    """Steps are captured, and batches have one shape."""
    return True, None


def make_step(setup: Setup, kind: str, recorder: Callable[[torch.device], Recorder]) -> CapturedStep:
    """The step that is captured, and compiled at once or later."""
    if kind == "at once":
        return CapturedStep(setup, recorder=recorder)
    return CompiledLater(setup, 0, fail, fail, lambda message: print(message, file=sys.stderr), recorder)


def fail(error: Exception) -> None:
    """Nothing to measure."""
    raise error


def _count(counters: dict[str, dict[str, int]], what: str) -> int:
    names = {"inductor": f"fxgraph_cache_{what}", "aot_autograd": f"autograd_cache_{what}"}
    return sum(counters[group][name] for group, name in names.items())


def in_a_new_process(options: argparse.Namespace, case: str, kind: str, store: Path) -> dict[str, Any]:
    """`first_steps` in a process whose data folder has the data, and the kernels kept in `store` alone."""
    root = default_root()
    for path in root.iterdir() if root.is_dir() else ():
        if path.name != "compiled" and not (store / path.name).exists():
            (store / path.name).symlink_to(path)
    words = [
        "--child",
        kind,
        "--cases",
        case,
        "--data",
        options.data,
        *(["--small"] if options.small else []),
    ]
    environment = {**os.environ, "MMB_DATA": str(store)}
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        environment.pop(name, None)
    found = subprocess.run(
        [sys.executable, __file__, *words], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    result: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return result


def lines(results: Iterable[dict[str, Any]]) -> list[list[str]]:
    """Lines of the table."""
    return [
        [
            f"{one['case']}, {one['kind']}",
            *(f"{one[name]:.2f}" for name in ("setup", "first", "until")),
            str(one["steps"]),
            f"{one['pause']:.2f}",
            *("-" if one[name] is None else f"{one[name]:.2f}" for name in ("ms_before", "ms_after")),
            str(one["misses"]),
            str(one["hits"]),
        ]
        for one in results
    ]


HEADER = ["", "set-up, s", "first step, s", "until compiled, s", "steps until then", "pause, s"]
HEADER += ["ms before", "ms after", "compiled here", "found"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="random", help="a data set of molecules, or random ones")
    parser.add_argument(
        "--cases", nargs="+", choices=list(CASES), default=["CE", "MMB-pAUC", "mAUC-CT, exact"]
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="warm comes after cold")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.steps = 1
    if options.child:
        print(json.dumps(first_steps(options, *options.cases, options.child)))
        return
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(options.cases):
            for kind in options.kinds:
                store = Path(folder, f"{number}-{kind == 'at once'}")  # without spaces, for compilers
                store.mkdir(parents=True, exist_ok=True)
                found = {"case": case, "kind": kind, **in_a_new_process(options, case, kind, store)}
                results.append(found)
                print("  ".join(lines([found])[0]), flush=True)
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    print_table(f"First steps in a new process, GIN, {where}", HEADER, lines(results))
    print_json({"benchmark": "first_step", "machine": {**machine(), "device": where}, "rows": results})


if __name__ == "__main__":
    main()
