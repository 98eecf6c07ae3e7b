"""What is timed of a fused layer: kernels with several tiles, and those of torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from mmb.models import _layer_steps as steps
from mmb.models._layer_steps import TILES
from mmb.models.graph_isomorphism import GINLayer
from mmb.models.message_passing import _PassMessages, pass_messages

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from random_graphs import random_graphs

COPIES, DROPPED = 4, 6554
# Group, the tiles it takes (if they can be chosen), a variant of them, bytes, call on one of several copies.
Variant = tuple[str, str, Any, float, Callable[[int], Any]]


class Case:
    """Random inputs of a layer in full size, the same in several copies, so that caches do not hold them."""

    def __init__(self, device: str, graphs: int, width: int) -> None:
        generator = torch.Generator().manual_seed(0)
        some = min(graphs, 256)
        store = random_graphs(some, generator, 16, 36)
        # As in molecules, a few kinds of bonds are most of them.
        common = torch.tensor([0, 1, 2, 12, 13, 36, 37, 36, 0, 0, 1, 36])
        codes = common[store.bond_codes.long() % len(common)].to(torch.uint8)
        store = replace(store, bond_codes=codes)
        rows = torch.arange(graphs) % some
        nodes, edges = store.sizes(rows)
        self.room = (nodes // 512 + 2) * 512, (edges // 1024 + 2) * 1024
        self.batch = store.to(device).fixed(rows.to(device), *self.room)
        torch.manual_seed(0)
        self.layer = GINLayer(width).to(device)
        with torch.no_grad():
            for parameter in self.layer.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        self.width, self.device = width, device

    def features(self, rows: int | None = None, columns: int | None = None) -> torch.Tensor:
        """Features of nodes, without columns of padding by default; in bfloat16 on a GPU."""
        shape = rows or self.room[0], columns or self.width
        dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        return torch.randn(*shape, device=self.device).relu().to(dtype)


def variants(options: argparse.Namespace) -> Iterator[Variant]:
    """Everything that is timed."""
    case = Case(options.device, options.graphs, options.width)
    batch, layer, width, inner = case.batch, case.layer, case.width, 2 * case.width
    count, high, wide = case.room[0], steps.aligned(width), steps.aligned(inner)
    unit = 2.0 * count * high
    x, y = ([case.features(columns=high) for _ in range(COPIES)] for _ in range(2))
    h, g = ([case.features(columns=wide) for _ in range(COPIES)] for _ in range(2))
    thin = [case.features() for _ in range(COPIES)]
    real, seed = batch.graph_ptr[-2:-1], torch.tensor([3], device=case.device)
    graph = steps.Graph(batch.edges, batch.bond_codes, batch.edge_ptr, real)
    epsilon, norm = layer.epsilon.detach(), layer.mlp.norm1
    bonds = case.features(60, high)
    done = torch.zeros(4, steps.COUNTERS // 4, dtype=torch.int32, device=case.device)
    found, found2 = (torch.rand(6, size, device=case.device) for size in (wide, high))

    def of(group: str, name: str, moved: float, choices: Any, call: Callable[..., Any]) -> Iterator[Variant]:
        for choice in choices:
            tiles = replace(TILES, **{name: choice})
            yield group, name, choice, moved * unit, lambda i, t=tiles: call(i, t)

    yield "copy", "", "torch", 4 * unit, lambda i: h[i].clone()
    parts = [part.detach() for part in (norm.weight, norm.bias, layer.mlp.linear1.bias)]
    sums = [(64, 1, 64, 4), (32, 2, 64, 4), (32, 4, 64, 4), (64, 2, 64, 4), (32, 2, 128, 4), (32, 1, 128, 4)]
    sums += [
        (64, 2, 32, 8),
        (32, 4, 32, 4),
        (16, 4, 128, 2),
        (32, 4, 108, 4),
        (64, 2, 108, 8),
        (64, 2, 64, 8),
    ]
    low = [part[:width] for part in parts]
    yield from of(
        "statistics 1", "statistics", 2, sums,
        lambda i, t: steps.statistics(h[i], *parts, real, done[0], 1e-5, t),
    )  # fmt: skip
    yield from of(
        "statistics 2", "statistics", 1, sums,
        lambda i, t: steps.statistics(x[i], *low, real, done[1], 1e-5, t),
    )  # fmt: skip
    yield from of(
        "gradients 1", "gradients", 4, sums,
        lambda i, t: steps.gradients(g[i], h[i], found, real, seed, done[2], inner, True, 0, 1.0, t),
    )  # fmt: skip
    yield from of(
        "gradients 2", "gradients", 2, sums,
        lambda i, t: steps.gradients(y[i], x[i], found2, real, seed, done[3], width, False, 0, 1.1, t),
    )  # fmt: skip
    norms = [(32, 64, 4), (64, 64, 4), (16, 64, 4), (16, 128, 4), (32, 128, 4), (32, 32, 4), (16, 64, 2)]
    norms += [(8, 256, 4), (64, 64, 8), (32, 128, 8)]
    yield from of("norm 1", "norm", 4, norms, lambda i, t: steps.norm(h[i], found, real, seed, True, 0, t))
    yield from of(
        "norm 2", "norm", 2, norms, lambda i, t: steps.norm(x[i], found2, real, seed, True, DROPPED, t)
    )
    yield from of(
        "norm 1 back", "backward", 6, norms,
        lambda i, t: steps.norm_backward(g[i], h[i], found, found, real, seed, True, 0, 1.0, t),
    )  # fmt: skip
    yield from of(
        "norm 2 back", "backward", 3, norms,
        lambda i, t: steps.norm_backward(y[i], x[i], found2, found2, real, seed, False, 0, 1.1, t),
    )  # fmt: skip
    last = [
        (
            "sums",
            lambda i: steps.gradients(y[i], x[i], found2, real, seed, done[3], width, True, DROPPED, 1.1),
        ),
        ("back", lambda i: steps.norm_backward(y[i], x[i], found2, found2, real, seed, True, DROPPED, 1.1)),
    ]
    for name, call in last:
        yield "norm 2, drawn again", "", name, 2 * unit, call
    about = [
        (8, 128, 2, 2), (8, 128, 4, 2), (4, 128, 4, 1), (8, 64, 4, 1), (8, 64, 2, 1), (4, 64, 4, 1),
        (16, 64, 4, 2), (8, 64, 4, 2), (16, 32, 4, 1), (8, 32, 4, 1), (4, 128, 2, 1), (4, 256, 2, 2),
        (16, 128, 2, 4), (8, 64, 1, 1), (16, 64, 2, 4),
    ]  # fmt: skip
    yield from of("messages", "gather", 2, about, lambda i, t: steps.gather(x[i], bonds, epsilon, graph, t))
    by_bonds = torch.zeros(61, high, device=case.device)
    yield from of(
        "messages back",
        "scatter",
        3,
        about,
        lambda i, t: steps.scatter_to_nodes(y[i], x[i], bonds, epsilon, graph, by_bonds[-1], True, t),
    )
    to_bonds = [
        (64, 64, 8, 4, 3), (64, 64, 8, 4, 1), (64, 64, 4, 4, 1), (64, 64, 2, 4, 1), (64, 64, 4, 4, 2),
        (128, 64, 2, 4, 1), (32, 64, 8, 4, 1), (64, 128, 4, 4, 1), (64, 128, 4, 8, 1), (64, 32, 4, 4, 1),
        (32, 64, 4, 2, 1), (32, 128, 4, 4, 1), (64, 64, 1, 4, 1), (16, 64, 8, 2, 1),
    ]  # fmt: skip
    yield from of(
        "bonds",
        "bonds",
        2,
        to_bonds,
        lambda i, t: steps.scatter_to_bonds(y[i], x[i], bonds, graph, by_bonds, t),
    )
    both = [
        (rows, chunk, 64, turns, 4, stages)
        for rows, chunk, turns, stages in product((32, 64), (32, 64), (2, 4), (1, 2))
    ]
    both += [(64, 64, 128, 2, 8, 1), (64, 32, 128, 2, 8, 1), (64, 64, 32, 4, 4, 1), (16, 32, 64, 4, 4, 1)]
    both += [(64, 64, 64, 8, 4, 1), (64, 64, 64, 1, 4, 1), (128, 64, 64, 2, 4, 1), (32, 16, 64, 4, 2, 1)]
    yield from of(
        "both", "both", 3, both, lambda i, t: steps.scatter(y[i], x[i], bonds, epsilon, graph, True, t)
    )
    few = bonds[:, :width].contiguous()
    yield "today's", "", "messages", 2 * unit, lambda i: pass_messages(thin[i], few, epsilon, batch)
    back = today_back(thin, few, epsilon, y, batch)
    yield "today's", "", "messages back", 3 * unit, back
    means = [(32, 64, 1), (32, 64, 2), (32, 64, 4), (16, 64, 1), (32, 128, 2), (16, 128, 2), (8, 128, 1)]
    yield from of("means", "mean", 1, means, lambda i, t: steps.mean(x[i], batch.graph_ptr, t))
    for size in (inner, wide, 640):
        into, out_of = (
            torch.randn(*shape, device=case.device).bfloat16() for shape in ((size, high), (high, size))
        )
        z = [case.features(columns=size) for _ in range(COPIES)]
        into_rows, out_rows = (weight.t().contiguous() for weight in (into, out_of))
        each: dict[str, Callable[[int], Any]] = {
            "product in": lambda i, b=into: x[i] @ b.t(),
            "product in, rows of inputs": lambda i, b=into_rows: x[i] @ b,
            "product out, rows of inputs": lambda i, b=out_rows, a=z: a[i] @ b,
            "product out": lambda i, b=out_of, a=z: a[i] @ b.t(),
            "product back": lambda i, b=out_of: y[i] @ b,
            "product to atoms": lambda i, b=into, a=z: a[i] @ b,
            "weights in": lambda i, a=z: (a[i].t() @ x[i])[:inner, :width].float().contiguous(),
            "weights out": lambda i, a=z: (x[i].t() @ a[i])[:width, :inner].float().contiguous(),
        }
        for name, call in each.items():
            yield name, "", size, 3 * unit, call


def today_back(
    thin: list[torch.Tensor],
    bonds: torch.Tensor,
    epsilon: torch.Tensor,
    grads: list[torch.Tensor],
    batch: Any,
) -> Callable[[int], Any]:
    """The backward pass of messages as it is without fusing."""

    class Context:
        saved_tensors: tuple[torch.Tensor, ...] = ()

    def call(copy: int) -> Any:
        context = Context()
        graph = (batch.edges, batch.bond_codes, batch.edge_ptr)
        context.saved_tensors = (thin[copy], bonds, epsilon, *graph)
        return _PassMessages.backward(context, grads[copy])

    return call
