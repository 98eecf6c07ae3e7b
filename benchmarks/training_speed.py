"""What a training step costs on a GPU: graphs per second, beside cross-entropy and beside the hardware.

    python benchmarks/training_speed.py --data molpcba --kernels results/molpcba/kernels

A step is a whole one: the batch cut out of the data on the device, forward and backward, the optimizer. Each
objective is timed twice, kernel by kernel and captured (`training.capture`). The floor is what the device
needs to move every tensor of the network once and to multiply what is multiplied; see `floor`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from _timing import machine, print_json, print_table
from mmb.data.inputs.graphs import GraphInputs
from mmb.training import merge, resolve
from mmb.training.loop.evaluate import evaluate_part
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.setup import Setup, make_setup, rows_per_step
from mmb.training.loop.step import make_step

BANDWIDTH, ARITHMETIC = 4.3e12, 790e12  # of an H200: bytes per second, bfloat16 operations per second
ROWS: dict[str, Any] = {"kind": "rows", "batch_size": 1024, "rich_fraction": 0.5}
TASKS: dict[str, Any] = {"kind": "tasks", "tasks_per_step": 8, "rows_per_task": 64}  # and as many below
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "CE": ("ce", ROWS, {}),
    "mAUC": ("auc", ROWS, {}),
    "MMB-pAUC": ("pauc", ROWS, {"scores": "logit", "margin": 8.0}),
    "MMB-pAUC, full": (
        "pauc-full",
        ROWS,
        {"scores": "logit", "margin": 8.0, "tau1": 0.5, "temperature": 0.5},
    ),
    "pairwise pAUC": ("pauc-pairwise", ROWS, {"capacity": 4608}),
    "mAUC-CT, exact": ("auc-ct", TASKS, {"gradient": "exact"}),
    "mAUC-CT, first order": ("auc-ct", TASKS, {"gradient": "first_order"}),
}


def make(case: str, data: str, capture: bool) -> Setup:
    """The setup of one case."""
    method, sampler, objective = CASES[case]
    fragment = {
        "data": {"name": data},
        "model": {"name": "gin", "dropout": 0.1},
        "method": method,
        "objective": objective,
        "sampler": sampler,
        "training": {"precision": "bfloat16", "capture": capture, "device": "cuda", "tensorboard": False},
    }
    return make_setup(resolve(merge({}, fragment)))


def time_steps(setup: Setup, steps: int) -> tuple[float, list[tuple[str, float, float]]]:
    """Seconds per step, and name, milliseconds and launches per step of every kernel."""
    step, batches = make_step(setup), iter(setup.feed)

    def run(count: int) -> None:
        for number in range(count):
            setup.set_step_sizes(number)
            setup.window.add(step(next(batches)))
        torch.cuda.synchronize()

    run(8)
    start = time.perf_counter()
    run(steps)
    seconds = (time.perf_counter() - start) / steps
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run(5)
    kernels = [
        (event.key, event.self_device_time_total / 5e3, event.count / 5)
        for event in seen.key_averages()
        if event.self_device_time_total > 0
    ]
    return seconds, sorted(kernels, key=lambda kernel: -kernel[1])


def floor(setup: Setup) -> tuple[float, float]:
    """Bytes moved and operations of a step of cross-entropy with GIN, at the least.

    With N nodes, width w and L layers, in bfloat16: forward, a layer reads and writes its nodes for messages
    (2 N w), both products (6 N w), statistics and application of both norms (9 N w); backward twice of that.
    Products: 4 N w^2 multiplications and additions each way, three ways.
    """
    inputs = setup.dataset.inputs
    assert isinstance(inputs, GraphInputs)
    train = setup.dataset.split["train"]
    nodes = rows_per_step(setup.recipe) * inputs.sizes(train)[0] / len(train)
    encoder: Any = setup.model.encoder
    layers, width = len(encoder.layers), encoder.layers[0].mlp.linear1.in_features
    return 2 * 3 * 17 * nodes * width * layers, 3 * 8 * nodes * width**2 * layers


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="molpcba")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--kernels", type=Path, help="folder for a table of kernels of each case")
    options = parser.parse_args()
    rows, result, alone = [], [], {}
    for case, capture in cases(options.cases):
        with own_randomness(0, torch.device("cuda")):
            setup = make(case, options.data, capture)
            seconds, kernels = time_steps(setup, options.steps)
        speed, busy = (
            rows_per_step(setup.recipe) / seconds,
            sum(kernel[1] for kernel in kernels) / (1e3 * seconds),
        )
        alone.setdefault(capture, seconds)  # cross-entropy comes first
        name = f"{case}, {'captured' if capture else 'kernel by kernel'}"
        rows.append(
            [name, f"{1e3 * seconds:.2f}", f"{speed:,.0f}", f"{seconds / alone[capture]:.2f}", f"{busy:.2f}"]
        )
        result.append({"case": case, "captured": capture, "ms": 1e3 * seconds, "graphs_per_second": speed,
                       "times_ce": seconds / alone[capture], "busy": busy})  # fmt: skip
        if options.kernels:
            options.kernels.mkdir(parents=True, exist_ok=True)
            lines = (f"{ms:9.4f} ms {count:7.1f} x  {key[:120]}" for key, ms, count in kernels)
            (options.kernels / f"{name.replace(', ', '-').replace(' ', '-')}.txt").write_text(
                "\n".join(lines) + "\n"
            )
    moved, operations = floor(setup)
    least = max(moved / BANDWIDTH, operations / ARITHMETIC)
    start = time.perf_counter()
    for part in ("valid", "test"):
        evaluate_part(setup, part)
    evaluation = time.perf_counter() - start
    where = torch.cuda.get_device_name()
    title = f"{options.data}, GIN, {where}: steps of {rows_per_step(setup.recipe)} graphs"
    print_table(title, ["", "ms", "graphs/s", "times CE", "device busy"], rows)
    print(f"\nFloor of a CE step: {1e3 * least:.2f} ms ({moved / 1e9:.2f} GB, {operations / 1e9:.0f} GFLOP)")
    print(f"Share of it that is reached: {least / alone[max(alone)]:.2f}")
    print(f"Evaluation of valid and test: {evaluation:.2f} s")
    print_json({"benchmark": "training_speed", "machine": {**machine(), "device": where}, "steps": result,
                "floor_ms": 1e3 * least, "evaluation_seconds": evaluation})  # fmt: skip


def cases(wanted: list[str]) -> Iterator[tuple[str, bool]]:
    """Every case kernel by kernel, then captured."""
    for capture in (False, True):
        for case in wanted:
            yield case, capture


if __name__ == "__main__":
    main()
