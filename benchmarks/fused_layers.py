"""What the kernels of a fused layer of GIN compute and cost on a GPU, one by one and in a training step.

    python benchmarks/fused_layers.py
    python benchmarks/fused_layers.py --parts steps --kernels results/molpcba/speed/kernels/fused

The part `errors` compares a layer and its gradients with float64. The part `kernels` times each kernel, with
several tiles, beside torch's and beside the time that memory needs for what it reads and writes. The part
`steps` times captured training steps with and without fused layers.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from _layer_variants import COPIES, Case, variants
from _timing import machine, print_json, print_table
from mmb.models import _layer_steps as steps_of_layers
from mmb.models import fused_layers, graph_isomorphism
from mmb.models._layer_steps import TILES, Tiles
from mmb.models.graph_isomorphism import GINLayer
from mmb.models.message_passing import aggregate
from mmb.training import resolve
from mmb.training.loop.make_step import make_step
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.setup import make_setup

BANDWIDTH = 4.3e12  # of an H200, bytes per second
PARTS = ("errors", "kernels", "steps")
GRAPHS, WIDTH = 1024, 300


def difference(found: torch.Tensor, expected: torch.Tensor) -> str:
    """The relative error, in the norm."""
    return f"{((found.double() - expected).norm() / expected.norm().clamp(min=1e-30)).item():.1e}"


def errors(options: argparse.Namespace) -> dict[str, Any]:
    """A layer without dropout against float64, and the layer as it is without fusing."""
    case = Case(options.device, options.graphs, options.width)
    layer, batch, width = case.layer, case.batch, case.width
    nodes, bonds, slope = case.features(), case.features(60), case.features()
    slope = (slope - 0.3) * batch.node_mask.unsqueeze(1)
    extra = steps_of_layers.aligned(width) - width
    real = batch.node_mask
    results = {}
    for name in ("float64", "plain", "fused"):
        copy = GINLayer(width).to(case.device).train()
        copy.load_state_dict(layer.state_dict())
        inputs = [value.clone() for value in (nodes, bonds)]
        if name == "float64":
            copy, inputs = copy.double(), [value.double() for value in inputs]
        if name == "fused":
            inputs[0] = torch.nn.functional.pad(inputs[0], (0, extra))
        inputs = [value.requires_grad_() for value in inputs]
        with torch.autocast("cuda", torch.bfloat16, enabled=name != "float64"):
            if name == "fused":
                bonds_of = torch.stack([inputs[1]] * 2)
                layers = fused_layers.FusedLayers([copy.mlp, copy.mlp], 0.0, batch, bonds_of, False)
                output = layers(0, inputs[0], copy.epsilon)[:, :width]
                moved = layers._moments
            elif name == "plain":
                output = copy(*inputs, batch, real).relu()
            else:
                gathered = (1 + copy.epsilon) * inputs[0] + aggregate(*inputs, batch)
                output = copy.mlp(gathered, real).relu()
        if name != "fused":
            moved = [(b - start) / 0.1 + start for b, start in running(copy)]
        (output * slope).sum().backward()
        found = {"output": output[real], "nodes": inputs[0].grad[real][:, :width]}
        found["bonds"] = inputs[1].grad[:, :width]
        found |= {key: p.grad for key, p in copy.named_parameters() if p.grad is not None}
        found |= dict(zip(("mean 1", "variance 1", "mean 2", "variance 2"), moved, strict=True))
        results[name] = {key: value.detach() for key, value in found.items()}
    lines = [
        [key, *(difference(results[name][key], expected) for name in ("plain", "fused"))]
        for key, expected in results["float64"].items()
        if not key.endswith(("linear1.bias", "linear2.bias"))
    ]
    biggest = max(results["fused"][f"mlp.linear{n}.bias"].abs().max().item() for n in (1, 2))
    print_table("Relative errors against float64", ["", "plain", "fused"], lines)
    print(f"largest gradient of a bias in front of a norm: {biggest:.1e}")
    for message in (*both_ways(case), *chains(case)):
        print(message)
    return {"errors": lines, "dropout": dropout_facts(case, nodes, bonds)}


def both_ways(case: Case) -> Iterator[str]:
    """How the gradients of messages by one kernel differ from those by two."""
    high = steps_of_layers.aligned(case.width)
    batch, bonds = case.batch, case.features(60, high)
    nodes, grads = case.features(columns=high), case.features(columns=high) - 0.3
    graph = steps_of_layers.Graph(batch.edges, batch.bond_codes, batch.edge_ptr, batch.graph_ptr[-2:-1])
    for name, both in (("again", None), ("by one kernel", (64, 64, 64, 4, 4, 1))):
        first, second = (
            steps_of_layers.scatter(grads, nodes, bonds, case.layer.epsilon.detach(), graph, True, tiles)
            for tiles in (Tiles(), Tiles(both=both))
        )
        kinds = zip(("nodes", "bonds and epsilon"), second, first, strict=True)
        for kind, one, other in kinds:
            yield f"gradient of {kind}, {name}: {difference(one, other.double())}"


def chains(case: Case) -> Iterator[str]:
    """How gradients of layers differ if only those that passed a relu are handed back."""
    found = []
    bonds = case.features(60)
    nodes = case.features(columns=steps_of_layers.aligned(case.width))
    for chained in (False, True):
        torch.manual_seed(0)
        layers = fused_layers.FusedLayers(
            [case.layer.mlp] * 3, 0.1, case.batch, torch.stack([bonds] * 3), chained
        )
        value = nodes.clone().requires_grad_()
        output = value
        for number in range(3):
            output = layers(number, output, case.layer.epsilon)
        weights = [case.layer.mlp.linear1.weight, case.layer.mlp.norm2.weight]
        found.append(torch.autograd.grad(output.float().square().sum(), [value, *weights]))
    for kind, one, other in zip(("nodes", "weight", "scale"), *found, strict=True):
        yield f"gradient of {kind}, chained: {difference(one, other.double())}"


def running(layer: GINLayer) -> Iterator[tuple[torch.Tensor, float]]:
    """Running statistics, each with its first value."""
    for norm in (layer.mlp.norm1, layer.mlp.norm2):
        yield norm.running_mean, 0.0
        yield norm.running_var, 1.0


def dropout_facts(case: Case, nodes: torch.Tensor, bonds: torch.Tensor) -> dict[str, float]:
    """What share is kept, how that of neighbors is related, and whether the backward pass drops the same."""
    layers = fused_layers.FusedLayers([case.layer.mlp] * 2, 0.1, case.batch, torch.stack([bonds] * 2), False)
    nodes = torch.nn.functional.pad(nodes, (0, layers.padding)).requires_grad_()
    output = layers(1, nodes, case.layer.epsilon)[:, : case.width]  # the last layer, without a relu
    kept = (output[case.batch.node_mask] != 0).float()
    again = layers(1, nodes, case.layer.epsilon)[:, : case.width]
    across = ((kept[:, 1:] - 0.9) * (kept[:, :-1] - 0.9)).mean().item() / 0.09
    down = ((kept[1:] - 0.9) * (kept[:-1] - 0.9)).mean().item() / 0.09
    facts = {
        "kept": kept.mean().item(),
        "least kept in a column": kept.mean(0).min().item(),
        "most kept in a column": kept.mean(0).max().item(),
        "correlation across": across,
        "correlation down": down,
        "repeated with one seed": float(torch.equal(output, again)),
    }
    for key, value in facts.items():
        print(f"dropout of 0.1, {key}: {value:.4f}")
    return facts


def kernels(options: argparse.Namespace) -> dict[str, Any]:
    """Times of all kernels, with several tiles."""
    compile_ahead(options)
    found: dict[str, list[tuple[float, str]]] = {}
    floors, totals = {}, {}
    for group, name, choice, moved, call in variants(options):
        if time.perf_counter() > options.until:
            print("no time left for other variants")
            break
        try:
            spent = microseconds(call)
        except Exception as error:
            first = (str(error).strip().splitlines() or ["?"])[0][:100]
            print(f"{group}, {choice}: {type(error).__name__}: {first}", flush=True)
            spent = math.inf
        spelled = " ".join(map(str, choice)) if isinstance(choice, tuple) else str(choice)
        found.setdefault(group, []).append((spent, spelled))
        floors[group] = 1e6 * moved / BANDWIDTH
        if name:
            totals[name, choice] = totals.get((name, choice), 0.0) + spent
    print("\nMicroseconds: group (memory alone): variants\n")
    for group, times in found.items():
        spelled = "; ".join(f"{name} = {spent:.1f}" for spent, name in sorted(times))
        print(f"{group} ({floors[group]:.1f}): {spelled}")
    best: dict[str, tuple[float, Any]] = {}
    for (name, choice), spent in totals.items():
        best[name] = min(best.get(name, (math.inf, None)), (spent, choice), key=lambda pair: pair[0])
    apart = best["scatter"][0] + best["bonds"][0]
    if best["both"][0] > apart:
        best["both"] = apart, None
    print("best:", {name: choice for name, (_, choice) in best.items()}, flush=True)
    if options.tiles:
        options.tiles.write_text(json.dumps({name: choice for name, (_, choice) in best.items()}))
    return {"kernels": found}


def microseconds(call: Callable[[int], Any]) -> float:
    """Of one call, in a graph of several on different copies."""
    for copy in range(COPIES):
        call(copy)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [call(copy % COPIES) for copy in range(3 * COPIES)]
    times = []
    for _ in range(8):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(1e3 * start.elapsed_time(end) / (3 * COPIES))
    del kept
    return sorted(times)[2]


def compile_ahead(options: argparse.Namespace) -> None:
    """Compile the kernels of all variants in several processes, which leave them in Triton's cache."""
    workers = options.workers
    if workers < 2:
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        list(pool.map(compile_some, [(options, number, workers) for number in range(workers)]))


def compile_some(job: tuple[argparse.Namespace, int, int]) -> None:
    """Call every so many variants once."""
    options, number, workers = job
    for *_, call in islice(variants(options), number, None, workers):
        try:
            call(0)
        except Exception:
            continue  # to be reported when it is timed
    torch.cuda.synchronize()


CASES = [  # method, capture, whether layers are fused
    ("ce", "auto", True),
    ("ce", True, True),
    ("pauc", True, True),
    ("ce", True, False),
    ("pauc", "auto", True),
    ("ce", "auto", False),
]


def steps(options: argparse.Namespace) -> dict[str, Any]:
    """Captured training steps with and without fused layers."""
    if options.tiles and options.tiles.exists():
        chosen = {
            name: tuple(choice) if choice else None
            for name, choice in json.loads(options.tiles.read_text()).items()
        }
        steps_of_layers.TILES = replace(TILES, **chosen)
    lines, found, tables = [], [], []
    usual = graph_isomorphism.can_fuse
    for method, capture, fuses in CASES:
        name = f"{method}, {'fused' if fuses else 'plain'}, captured"
        name += "" if capture is True else ", not compiled"
        graph_isomorphism.can_fuse = usual if fuses else lambda *given: False
        try:
            facts, table = timed_step(options, method, capture)
        except Exception as error:
            traceback.print_exc()
            print(f"{name}: {type(error).__name__}", flush=True)
            continue
        found.append({"case": name, **facts})
        losses = " ".join(f"{value:.4f}" for value in facts["losses"])
        print(
            f"{name}: {facts['ms']:.3f} ms, first steps {facts['first']:.1f} s, losses {losses}",
            flush=True,
        )
        lines.append(
            [
                name,
                f"{facts['ms']:.3f}",
                f"{1e3 * GRAPHS / facts['ms']:,.0f}",
                f"{facts['kernels']:.3f}",
                f"{facts['launches']:.0f}",
                f"{facts['first']:.1f}",
            ]
        )
        tables.append((name, table))
        if options.kernels:
            options.kernels.mkdir(parents=True, exist_ok=True)
            text = "\n".join(f"{ms:9.4f} ms {n:7.1f} x  {key[:120]}" for key, ms, n in table)
            (options.kernels / f"{name.replace(', ', '-').replace(' ', '-')}.txt").write_text(text + "\n")
    graph_isomorphism.can_fuse = usual
    for name, table in tables[:1]:
        rows = [[key[:70], f"{1e3 * ms:.1f}", f"{n:.0f}"] for key, ms, n in table[:60]]
        print_table(f"Kernels of a step, {name}", ["", "us", "launches"], rows)
    print_table("Steps", ["", "ms", "graphs/s", "ms of kernels", "launches", "first steps, s"], lines)
    return {"steps": found}


def timed_step(
    options: argparse.Namespace, method: str, capture: Any
) -> tuple[dict[str, Any], list[tuple[str, float, float]]]:
    """Milliseconds of a step, and its kernels."""
    recipe = resolve(
        {
            "data": {"name": "_random_sets:molecules", "rows": 2304, "tasks": 128},
            "model": {"name": "gin", "dropout": 0.1, "width": options.width},
            "method": method,
            "sampler": {"kind": "rows", "batch_size": options.graphs, "rich_fraction": 0.5},
            "training": {"precision": "bfloat16", "device": options.device, "capture": capture},
        }
    )
    with own_randomness(0, torch.device(options.device)):
        setup = make_setup(recipe)
        take, batches = make_step(setup, print, 0 if capture == "auto" else None), iter(setup.feed)
        losses = []

        def step() -> None:
            setup.window.add(take(next(batches)))

        start = time.perf_counter()
        for _ in range(6):
            losses.append(take(next(batches)))
        torch.cuda.synchronize()
        first = time.perf_counter() - start
        for _ in range(40):
            losses.append(take(next(batches)))
        torch.cuda.synchronize()
        times = []
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(40):
                step()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / 40)
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            for _ in range(5):
                step()
            torch.cuda.synchronize()
    table = [
        (event.key, event.self_device_time_total / 5e3, event.count / 5)
        for event in seen.key_averages()
        if event.self_device_time_total > 0
    ]
    table.sort(key=lambda line: -line[1])
    key = next(iter(losses[0]))
    facts = {
        "ms": 1e3 * sorted(times)[2],
        "kernels": sum(line[1] for line in table),
        "launches": sum(line[2] for line in table),
        "first": first,
        "losses": [float(losses[n][key]) for n in (0, 1, 2, 5, 10, 20, 30, 45)],
    }
    return facts, table


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--graphs", type=int, default=GRAPHS)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--workers", type=int, default=8, help="processes that compile kernels ahead")
    parser.add_argument("--seconds", type=float, default=95, help="after which nothing new is timed")
    parser.add_argument("--kernels", type=Path, help="folder for tables of the kernels of steps")
    parser.add_argument("--tiles", type=Path, help="where `kernels` leaves the best tiles for `steps`")
    parser.add_argument("--json", action="store_true", help="print all figures once more as a line of JSON")
    options = parser.parse_args(arguments)
    fused_layers.IN_USE = True
    options.until = time.perf_counter() + options.seconds
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    found: dict[str, Any] = {}
    for part in options.parts:
        start = time.perf_counter()
        try:
            found |= {"errors": errors, "steps": steps, "kernels": kernels}[part](options)
        except Exception:
            traceback.print_exc()
        print(f"\n{part}: {time.perf_counter() - start:.0f} s", flush=True)
    if options.json:
        where = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        print_json({"benchmark": "fused_layers", "machine": {**machine(), "device": where}, **found})


if __name__ == "__main__":
    main()
