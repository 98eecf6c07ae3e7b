"""What a training step costs on a GPU: rows per second, against cross-entropy, other loops and the hardware.

    python benchmarks/training_speed.py --data molpcba --kernels results/molpcba/kernels
    python benchmarks/training_speed.py --parts resnet18 densenet121
    python benchmarks/training_speed.py --parts host  # without a GPU

A step is a whole one: the batch cut out of the data on the device, forward and backward, the optimizer. Each
objective is timed kernel by kernel, captured (`training.capture`), and captured without compiling, as
"auto" does in short runs. Beside them are loops written by hand: with PyG, and with torch alone, which has
channels last, autocast and `torch.compile` for images. The floor is what the device needs to move every
tensor of the network once and to multiply what is multiplied; see `floor`. The part `host` counts what is
launched in a step, by phase, with tensors so small that computing takes no time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from _launches import PHASES, as_on_a_gpu, count
from _plain_loops import labels_with_nan, plain_step, pyg_batches, pyg_gin, pyg_graphs
from _timing import machine, print_json, print_table
from mmb.data.inputs.graphs import GraphInputs
from mmb.models import gin
from mmb.models import registry as model_registry
from mmb.training import merge, resolve
from mmb.training.loop.make_step import make_step
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.sampler import rows_per_step
from mmb.training.loop.setup import Setup, make_setup
from mmb.training.recipes.components import complete_model

BANDWIDTH, ARITHMETIC = 4.3e12, 790e12  # of an H200: bytes per second, bfloat16 operations per second
ROWS: dict[str, Any] = {"kind": "rows", "batch_size": 1024, "rich_fraction": 0.5}
TASKS: dict[str, Any] = {"kind": "tasks", "tasks_per_step": 8, "rows_per_task": 64}  # and as many below
LOGIT = {"transform": "logit", "margin": 8.0}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "CE": ("ce", ROWS, {}),
    "mAUC": ("auc", ROWS, {}),
    "MMB-pAUC": ("pauc", ROWS, LOGIT),
    "MMB-pAUC, full": ("pauc-full", ROWS, {**LOGIT, "tau1": 0.5, "temperature": 0.5}),
    "pairwise pAUC": ("pauc-pairwise", ROWS, {"capacity": 4608}),
    "mAUC-CT, exact": ("auc-ct", TASKS, {"gradient": "exact"}),
    "mAUC-CT, first order": ("auc-ct", TASKS, {"gradient": "first_order"}),
}
MODES: dict[str, bool | str] = {"kernel by kernel": False, "captured": True, "captured, not compiled": "auto"}
IMAGES: dict[str, dict[str, Any]] = {
    "resnet18": {
        "data": {"name": "_random_sets:images", "rows": 4096, "side": 32, "tasks": 10},
        "model": {"name": "resnet18", "stem": "cifar"},
        "sampler": {"kind": "rows", "batch_size": 512, "rich_fraction": 0.5},
    },
    "densenet121": {
        "data": {"name": "_random_sets:images", "rows": 1024, "side": 224, "tasks": 14},
        "model": {"name": "densenet121"},
        "sampler": {"kind": "rows", "batch_size": 64, "rich_fraction": 0.5},
    },
}
PARTS = ("graphs", *IMAGES, "host")
SMALL: dict[str, Any] = {
    "graphs": {
        "data": {"rows": 96, "tasks": 3, "smallest": 2, "largest": 6},
        "model": {"width": 12, "layers": 2},
    },
    "resnet18": {"data": {"rows": 48, "side": 16, "tasks": 2}},
    "densenet121": {"data": {"rows": 48, "side": 32, "tasks": 2}},
}
SMALL_SAMPLER = {"batch_size": 4, "tasks_per_step": 2, "rows_per_task": 4}
Row = list[str]


class Bench:
    """What all parts share: sizes, the device, and the results so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.steps = 2 if options.small else options.steps
        self.results: list[dict[str, Any]] = []

    def recipe(self, part: str, fragment: dict[str, Any]) -> Any:
        """The recipe of a fragment, made small if asked for."""
        given: dict[str, Any] = {"training": {"precision": "bfloat16", "device": str(self.device)}}
        fragment = merge(merge({}, given), fragment)
        if self.options.small:
            sampler = {key: SMALL_SAMPLER[key] for key in SMALL_SAMPLER if key in fragment["sampler"]}
            own = {**SMALL[part], "sampler": sampler}
            if fragment["method"] == "pauc-pairwise":
                own["objective"] = {"capacity": 64}
            fragment = merge(fragment, own)
        return resolve(fragment)

    def measured(self, part: str, name: str, rows: int, step: Callable[[], None], **facts: Any) -> Row:
        """Time a step and write the result down: a line of the table."""
        seconds, kernels = time_steps(step, self.steps, self.device)
        busy = sum(kernel[1] for kernel in kernels) / (1e3 * seconds)
        launches = sum(kernel[2] for kernel in kernels)
        found = {"part": part, "case": name, "ms": 1e3 * seconds, "rows_per_second": rows / seconds}
        self.results.append({**found, "busy": busy, "launches": launches, **facts})
        if self.options.kernels:
            self.options.kernels.mkdir(parents=True, exist_ok=True)
            lines = (f"{ms:9.4f} ms {times:7.1f} x  {key[:120]}" for key, ms, times in kernels)
            path = self.options.kernels / f"{part}-{name.replace(', ', '-').replace(' ', '-')}.txt"
            path.write_text("\n".join(lines) + "\n")
        line = [name, f"{1e3 * seconds:.2f}", f"{rows / seconds:,.0f}", f"{busy:.2f}", f"{launches:.0f}"]
        print("  ".join(line), flush=True)  # the rest may take long
        return line


HEADER = ["", "ms", "rows/s", "device busy", "launches"]


def time_steps(
    step: Callable[[], None], steps: int, device: torch.device
) -> tuple[float, list[tuple[str, float, float]]]:
    """Seconds per step, and name, milliseconds and launches per step of every kernel."""

    def run(times: int) -> None:
        for _ in range(times):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    run(min(8, steps))
    start = time.perf_counter()
    run(steps)
    seconds = (time.perf_counter() - start) / steps
    if device.type != "cuda":
        return seconds, []
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run(5)
    kernels = [
        (event.key, event.self_device_time_total / 5e3, event.count / 5)
        for event in seen.key_averages()
        if event.self_device_time_total > 0
    ]
    return seconds, sorted(kernels, key=lambda kernel: -kernel[1])


def trainer_step(setup: Setup, steps: int | None = None) -> Callable[[], None]:
    """What the training loop does between two lines of the log."""
    take, batches, number = make_step(setup, print, steps), iter(setup.feed), iter(range(1 << 30))

    def step() -> None:
        setup.set_step_sizes(min(next(number), setup.steps - 1))
        setup.window.add(take(next(batches)))

    return step


def trained(bench: Bench, part: str, title: str, cases: dict[str, dict[str, Any]]) -> tuple[list[Row], Setup]:
    """Lines of the table for recipes, in every mode that there is, and the first setup."""
    lines, first = [], None
    for mode, capture in MODES.items():
        if capture and bench.device.type != "cuda":
            continue
        for case, fragment in cases.items():
            torch.compiler.reset()
            name = f"{title}{case}, {mode}"
            recipe = bench.recipe(part, merge(fragment, {"training": {"capture": capture}}))
            try:
                with own_randomness(0, bench.device):
                    setup = make_setup(recipe)
                    first = first or setup
                    step = trainer_step(setup, 0 if capture == "auto" else None)  # "auto" without compiling
                    rows = rows_per_step(recipe) or 0
                    lines.append(bench.measured(part, name, rows, step, capture=capture))
            except Exception as error:  # others may work
                print(f"{name}: {type(error).__name__}: {error}", flush=True)
                bench.results.append({"part": part, "case": name, "error": str(error)[:500]})
    assert first is not None
    return lines, first


def graphs(bench: Bench) -> None:
    """Objectives on molecules, against PyG and torch alone."""
    data = (
        {"name": "_random_sets:molecules"} if bench.options.data == "random" else {"name": bench.options.data}
    )
    cases = {
        case: {
            "data": data,
            "model": {"name": "gin", "dropout": 0.1},
            "method": CASES[case][0],
            "sampler": CASES[case][1],
            "objective": CASES[case][2],
        }
        for case in bench.options.cases
    }
    lines, setup = trained(bench, "graphs", "", cases)
    for name, step, rows in graph_loops(bench, setup):
        lines.append(bench.measured("graphs", name, rows, step))
    where = torch.cuda.get_device_name() if bench.device.type == "cuda" else "CPU"
    print_table(f"{setup.dataset.name}, GIN, {where}", HEADER, lines)
    moved, operations = floor(setup)
    least = max(moved / BANDWIDTH, operations / ARITHMETIC)
    bench.results.append({"part": "graphs", "case": "floor", "ms": 1e3 * least})
    print(f"\nFloor of a CE step: {1e3 * least:.2f} ms ({moved / 1e9:.2f} GB, {operations / 1e9:.0f} GFLOP)")


def graph_loops(bench: Bench, setup: Setup) -> Iterator[tuple[str, Callable[[], None], int]]:
    """Loops without this library's trainer, on the same rows."""
    rows = 4 if bench.options.small else ROWS["batch_size"]
    dataset, encoder = setup.dataset, setup.model.encoder
    size: dict[str, Any] = {"layers": len(encoder.layers), "dropout": 0.1}
    size["width"] = encoder.layers[0].mlp.linear1.in_features
    fused = bench.device.type == "cuda"
    inputs, labels = dataset.inputs, labels_with_nan(dataset.labels)
    train = dataset.split["train"][: 8 * rows]
    model = gin(labels.shape[1], **size).to(bench.device)
    built = cycle([(inputs[part], labels[part.to(bench.device)]) for part in train.split(rows)])
    optimizer = torch.optim.Adam(model.parameters(), fused=fused or None)
    yield "torch alone, batch built", plain_step(model, optimizer, built, bench.device), rows
    try:
        found = pyg_graphs(dataset, train)
    except ImportError:
        print("PyG: not installed")
        return
    for name, ahead in (("PyG, batch built", True), ("PyG, its loader", False)):
        model = pyg_gin(labels.shape[1], **size).to(bench.device)
        batches = ((data, data.y) for data in pyg_batches(found, rows, bench.device, ahead))
        optimizer = torch.optim.Adam(model.parameters(), fused=fused or None)
        yield name, plain_step(model, optimizer, batches, bench.device), rows


def image_part(part: str, bench: Bench) -> None:
    """Objectives on images, against the fastest usual loop with torch alone."""
    objectives = ("CE", "MMB-pAUC")
    cases = {case: {**IMAGES[part], "method": CASES[case][0]} for case in objectives}
    lines, setup = trained(bench, part, f"{part}, ", cases)
    rows = rows_per_step(setup.recipe) or 0
    dataset, labels = setup.dataset, labels_with_nan(setup.dataset.labels)
    train = dataset.split["train"][: 4 * rows]
    built = [(dataset.batch(some), labels[some.to(bench.device)]) for some in train.split(rows)]
    for name in ("eager", "compiled"):
        network = model_registry.build(**complete_model(setup.recipe.model, dataset)).to(bench.device)
        model: Any = network.to(memory_format=torch.channels_last)
        if name == "compiled":
            if bench.device.type != "cuda":
                continue
            model = torch.compile(model)
        optimizer = torch.optim.Adam(model.parameters(), fused=bench.device.type == "cuda" or None)
        whole = (batch for batch in cycle(built) if len(batch[1]) == rows)
        step = plain_step(model, optimizer, whole, bench.device, masked=True)
        lines.append(bench.measured(part, f"{part}, torch alone, batch built, {name}", rows, step))
    print_table(f"{part}, {dataset.inputs.images.shape[-1]} pixels, {rows} images a step", HEADER, lines)


def floor(setup: Setup) -> tuple[float, float]:
    """Bytes moved and operations of a step of cross-entropy with GIN, at the least.

    With N nodes, width w and L layers, in bfloat16: forward, a layer reads and writes its nodes for messages
    (2 N w), both products (6 N w), statistics and application of both norms (9 N w); backward twice of that.
    Products: 4 N w^2 multiplications and additions each way, three ways.
    """
    inputs = setup.dataset.inputs
    assert isinstance(inputs, GraphInputs)
    train = setup.dataset.split["train"]
    nodes = ROWS["batch_size"] * inputs.sizes(train)[0] / len(train)
    encoder: Any = setup.model.encoder
    layers, width = len(encoder.layers), encoder.layers[0].mlp.linear1.in_features
    return 2 * 3 * 17 * nodes * width * layers, 3 * 8 * nodes * width**2 * layers


def host(bench: Bench) -> None:
    """Launches and milliseconds of the host, by phase, with the operations of a GPU, on small tensors."""
    device, found, laps = torch.device("cpu"), {}, 2 if bench.options.small else 60
    fragment = {
        "data": {"name": "_random_sets:molecules", **SMALL["graphs"]["data"], "rows": 400},
        "model": {"name": "gin", "dropout": 0.1, "width": 12},
        "method": "ce",
        "sampler": {"kind": "rows", "batch_size": 16, "rich_fraction": 0.5},
        "training": {"precision": "bfloat16", "device": "cpu"},
    }
    for case in bench.options.cases:
        method, sampler, objective = CASES[case]
        if sampler is TASKS:
            continue
        with own_randomness(0, device), as_on_a_gpu():
            setup = make_setup(resolve(merge(fragment, {"method": method, "objective": objective})))
            for group in setup.optimizer.param_groups:
                group["fused"] = True  # as on a GPU
            found[case] = count(trainer_step(setup), setup.model, setup.optimizer, laps)
    try:
        molecules = pyg_graphs(setup.dataset, setup.dataset.split["train"])
    except ImportError:
        print("PyG: not installed")
    else:
        for name, built in (("PyG, batch built", True), ("PyG, its loader", False)):
            model = pyg_gin(setup.dataset.labels.shape[1], layers=5, width=12, dropout=0.1)
            optimizer = torch.optim.Adam(model.parameters(), fused=True)
            batches = ((data, data.y) for data in pyg_batches(molecules, 16, device, built))
            step = plain_step(model, optimizer, batches, device)
            found[name] = count(step, model, optimizer, laps)
    lines, times = [], []
    for name, (operations, spent) in found.items():
        launches = [sum(operations[phase].values()) for phase in PHASES]
        lines.append([name, *map(str, launches), str(sum(launches))])
        times.append([name, *(f"{spent[phase]:.2f}" for phase in PHASES), f"{sum(spent.values()):.2f}"])
        by_phase = {phase: dict(operations[phase]) for phase in PHASES}
        bench.results.append({"part": "host", "case": name, "operations": by_phase, "host_ms": spent})
    print_table("Operations of a step, GIN of 5 layers", ["", *PHASES, "all"], lines)
    print_table("Milliseconds of the host", ["", *PHASES, "all"], times)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS[:-1])
    parser.add_argument("--data", default="random", help="a data set of molecules, or random ones")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--kernels", type=Path, help="folder for a table of kernels of each case")
    parser.add_argument(
        "--autotune", action="store_true", help="let the loop of torch alone tune its kernels"
    )
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that it runs")
    bench = Bench(parser.parse_args(arguments))
    for part in bench.options.parts:
        if part in IMAGES:
            image_part(part, bench)
        else:
            {"graphs": graphs, "host": host}[part](bench)
    where = torch.cuda.get_device_name() if bench.device.type == "cuda" else "cpu"
    facts = {**machine(), "device": where}
    print_json({"benchmark": "training_speed", "machine": facts, "steps": bench.results})


if __name__ == "__main__":
    main()
