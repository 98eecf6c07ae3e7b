"""What several runs of one network would cost as one program, compared with one after the other.

    python benchmarks/stacked_runs.py --runs 5
    python benchmarks/stacked_runs.py --runs 8 --networks graphs  # on a GPU, where steps are captured

Runs differ in their weights and in the rows they draw. Their parameters are stacked, one evaluation under
`vmap` gives the scores of all, and one objective has the tasks of all side by side, so that each run has its
own block state. Times are of the processor, or of the device. How far weights are apart after a few steps in
double precision shows that it is the same training; in single precision, Adam makes rounding visible.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

import mmb
from _random_sets import molecules
from _timing import machine, print_json, print_table
from mmb.auc import CrossEntropy, Labels, Objective, PartialAUC
from mmb.data import Dataset
from mmb.data.splits import random_split
from mmb.models import gin, mlp
from mmb.models.task_graphs import stack_tasks

OBJECTIVES: dict[str, type[Objective]] = {"CE": CrossEntropy, "MMB-pAUC": PartialAUC}
NETWORKS = ("table", "small table", "fingerprints", "graphs")


class Case:
    """Data, and networks for it that differ in their weights."""

    def __init__(self, name: str, small: bool, device: torch.device) -> None:
        self.rows, self.device, self.graphs = (8 if small else 128), device, name == "graphs"
        generator = torch.Generator().manual_seed(0)
        if self.graphs:
            self.rows = 8 if small else 1024
            made = molecules(400 if small else 8192, 128, 16, 20 if small else 36).to(device)
            trial = [made.inputs.sizes(torch.randint(len(made), (self.rows,))) for _ in range(8)]
            self.room = tuple(int(1.1 * max(sizes)) + 1 for sizes in zip(*trial, strict=True))
            width = {"layers": 2, "width": 16} if small else {}
            self.network: Callable[[], nn.Module] = lambda: gin(128, dropout=0.0, **width)
        else:
            features, tasks, hidden, ranges = {
                "table": (20, 1, [256, 256], 8),
                "small table": (20, 1, [32], 0),
                "fingerprints": (256, 12, [256, 256], 0),
            }[name]
            made = _table(4000, features, tasks, generator).to(device)
            self.network = lambda: mlp(features, hidden, tasks, ranges=ranges)
        self.inputs, self.labels = made.inputs, made.labels

    def models(self, count: int, dtype: torch.dtype) -> list[nn.Module]:
        """Networks with weights of their own."""
        found = []
        for seed in range(count):
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                found.append(self.network().to(self.device, dtype))
        return found

    def draw(self, run: int, step: int) -> Tensor:
        """The rows of a run's step."""
        generator = torch.Generator().manual_seed(1000 * run + step)
        return torch.randint(len(self.labels), (self.rows,), generator=generator).to(self.device)

    def batch(self, rows: Tensor, dtype: torch.dtype) -> Any:
        """Inputs of one shape."""
        return self.inputs.fixed(rows, *self.room) if self.graphs else self.inputs[rows].to(dtype)

    def batches(self, rows: Tensor, dtype: torch.dtype) -> Any:
        """Inputs of several runs, `[runs, ...]`."""
        if self.graphs:
            return stack_tasks(self.inputs[rows.flatten()], len(rows), *self.room)
        return self.inputs[rows].to(dtype)


def _table(rows: int, features: int, tasks: int, generator: torch.Generator) -> Dataset:
    inputs = torch.randn(rows, features, generator=generator)
    truth = torch.randn(features, tasks, generator=generator) / features**0.5
    labels = (inputs @ truth + torch.randn(rows, tasks, generator=generator) > 1.5).to(torch.int8)
    names = tuple(f"task {number}" for number in range(tasks))
    return Dataset("random table", inputs, labels, random_split(rows, (0.9, 0.05, 0.05), generator), names)


def _adam(parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    on_gpu = parameters[0].is_cuda
    return torch.optim.Adam(parameters, lr=1e-3, capturable=on_gpu, fused=on_gpu or None)


def single(
    case: Case, objective: str, dtype: torch.dtype, run: int
) -> tuple[Callable[[int], None], nn.Module]:
    """A step of one run, and its network."""
    model = case.models(run + 1, dtype)[run]
    loss_of = OBJECTIVES[objective](Labels(case.labels.cpu())).to(case.device, dtype)
    optimizer = _adam([*model.parameters(), *loss_of.parameters()])

    def compute(inputs: Any, labels: Tensor) -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=case.graphs and labels.is_cuda):
            loss_of(model(inputs), labels).backward()
        optimizer.step()

    step = mmb.capture(compute)

    def take(number: int) -> None:
        rows = case.draw(run, number)
        step(case.batch(rows, dtype), case.labels[rows])

    return take, model


def stacked(
    case: Case, objective: str, dtype: torch.dtype, runs: int
) -> tuple[Callable[[int], None], dict[str, Tensor]]:
    """A step of several runs at once, and their weights `[runs, ...]`."""
    models = case.models(runs, dtype)
    weights, buffers = stack_module_state(models)
    empty, tasks = copy.deepcopy(models[0]).to("meta"), case.labels.shape[1]
    loss_of = OBJECTIVES[objective](Labels(case.labels.cpu().repeat(1, runs))).to(case.device, dtype)
    optimizer = _adam([*weights.values(), *loss_of.parameters()])

    def one(own: dict[str, Tensor], kept: dict[str, Tensor], inputs: Any) -> tuple[Tensor, dict[str, Tensor]]:
        kept = {name: value.clone() for name, value in kept.items()}
        return functional_call(empty, (own, kept), (inputs,)), kept

    def compute(inputs: Any, labels: Tensor) -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=case.graphs and labels.is_cuda):
            scores, new = torch.vmap(one)(weights, buffers, inputs)
            scores, labels = (part.movedim(0, 1).reshape(-1, runs * tasks) for part in (scores, labels))
            (runs * loss_of(scores, labels)).backward()  # it is a mean over tasks
        optimizer.step()
        with torch.no_grad():
            for name, value in new.items():
                buffers[name].copy_(value)

    step = mmb.capture(compute)

    def take(number: int) -> None:
        rows = torch.stack([case.draw(run, number) for run in range(runs)])
        step(case.batches(rows, dtype), case.labels[rows])

    return take, weights


def apart(case: Case, objective: str, runs: int) -> float:
    """How far weights are apart after ten steps in double precision."""
    take, weights = stacked(case, objective, torch.float64, runs)
    singles = [single(case, objective, torch.float64, run) for run in range(runs)]
    for number in range(10):
        take(number)
        for other, _ in singles:
            other(number)
    return max(
        float((weights[name][run] - value).detach().abs().max())
        for run, (_, model) in enumerate(singles)
        for name, value in model.named_parameters()
    )


def milliseconds(
    takes: dict[str, Callable[[int], None]], steps: int, device: torch.device
) -> dict[str, float]:
    """Medians of five turns, of the processor or of the device."""
    laps: dict[str, list[float]] = {name: [] for name in takes}
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    for turn in range(6):
        for name, take in takes.items():
            start = clock()
            for number in range(steps):
                take(turn * steps + number)
            if device.type == "cuda":
                torch.cuda.synchronize()
            laps[name].append(1e3 * (clock() - start) / steps)
    return {name: sorted(found[1:])[2] for name, found in laps.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS[:-1])
    parser.add_argument("--steps", type=int, default=20, help="in each of five turns")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)
    results, lines = [], []
    for network in options.networks:
        case = Case(network, options.small, device)
        for objective in OBJECTIVES:
            takes = {
                "one": single(case, objective, torch.float32, 0)[0],
                "stacked": stacked(case, objective, torch.float32, options.runs)[0],
            }
            found = milliseconds(takes, 2 if options.small else options.steps, device)
            far = (
                apart(case, objective, options.runs) if not (case.graphs and device.type == "cuda") else None
            )
            times = found["stacked"] / found["one"]
            results.append({"network": network, "objective": objective, **found, "apart": far})
            shown = "" if far is None else f"{far:.0e}"
            line = [f"{network}, {objective}", f"{found['one']:.2f}", f"{found['stacked']:.2f}"]
            lines.append([*line, f"{times:.2f}", f"{times / options.runs:.2f}", shown])
            print("  ".join(lines[-1]), flush=True)
    where = torch.cuda.get_device_name() if device.type == "cuda" else "one thread"
    header = ["ms", "one run", f"{options.runs} stacked", "times one", "times one after the other", "apart"]
    print_table(f"Runs of one network as one program, {where}", header, lines)
    facts = {**machine(), "device": where, "runs": options.runs}
    print_json({"benchmark": "stacked_runs", "machine": facts, "rows": results})


if __name__ == "__main__":
    main()
