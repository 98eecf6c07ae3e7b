"""How long a user waits for the first step of a captured run: with nothing compiled before, and again.

    python benchmarks/first_step.py
    python benchmarks/first_step.py --small --cases CE  # without a GPU: compiles a small network for the CPU

Every first step is that of a new process, and each case is trained twice with one folder of kept kernels,
which is empty before. Times are of the host: making the parts of the run, the first step, in which all is
compiled, and those up to the recording of the graph.
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
from pathlib import Path
from typing import Any, TypeVar

import torch

from _timing import machine, print_json, print_table
from mmb.cuda_graphs import WARM_UP, CudaGraph, Recorder
from mmb.data.registry import default_root
from mmb.training import merge
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.setup import make_setup
from mmb.training.loop.step import CapturedStep
from training_speed import CASES, Bench

Found = TypeVar("Found")
KINDS = ("cold", "warm")


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


def first_steps(options: argparse.Namespace, case: str) -> dict[str, Any]:
    """Seconds of the first steps of a case in this process, and what the compiler found or missed."""
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
    }
    recipe = bench.recipe("graphs", merge(fragment, {"training": {"capture": on_gpu}}))
    laps = []
    with own_randomness(0, bench.device):
        setup = make_setup(recipe)
        step = CapturedStep(setup, recorder=CudaGraph if on_gpu else lambda _: OnHost())
        batches = iter(setup.feed)
        laps.append(time.perf_counter() - start)
        for _ in range(WARM_UP + 2 if on_gpu else 1):
            start = time.perf_counter()
            loss = float(step(next(batches))["loss"])
            laps.append(time.perf_counter() - start)
    compiler: dict[str, dict[str, int]] = counters
    return {
        "setup": laps[0],
        "first": laps[1],
        "up_to_recording": sum(laps[1:]),
        "loss": loss,
        "misses": _count(compiler, "miss"),
        "hits": _count(compiler, "hit"),
    }


def _count(counters: dict[str, dict[str, int]], what: str) -> int:
    names = {"inductor": f"fxgraph_cache_{what}", "aot_autograd": f"autograd_cache_{what}"}
    return sum(counters[group][name] for group, name in names.items())


def in_a_new_process(options: argparse.Namespace, case: str, store: Path) -> dict[str, Any]:
    """`first_steps` in a process whose data folder has the data, and the kernels kept in `store` alone."""
    root = default_root()
    for path in root.iterdir() if root.is_dir() else ():
        if path.name != "compiled" and not (store / path.name).exists():
            (store / path.name).symlink_to(path)
    words = ["--child", case, "--data", options.data, *(["--small"] if options.small else [])]
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
            f"{one['case']}, {one['kernels']}",
            *(f"{one[name]:.2f}" for name in ("setup", "first", "up_to_recording")),
            str(one["misses"]),
            str(one["hits"]),
        ]
        for one in results
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="random", help="a data set of molecules, or random ones")
    parser.add_argument(
        "--cases", nargs="+", choices=list(CASES), default=["CE", "MMB-pAUC", "mAUC-CT, exact"]
    )
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--child", choices=list(CASES), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.steps = 1
    if options.child:
        print(json.dumps(first_steps(options, options.child)))
        return
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for case in options.cases:
            for kind in KINDS:
                found = {"case": case, "kernels": kind, **in_a_new_process(options, case, Path(folder))}
                results.append(found)
                print("  ".join(lines([found])[0]), flush=True)
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    header = ["seconds", "set-up", "first step", "up to recording", "compiled", "found"]
    print_table(f"First steps in a new process, GIN, {where}", header, lines(results))
    print_json({"benchmark": "first_step", "machine": {**machine(), "device": where}, "rows": results})


if __name__ == "__main__":
    main()
