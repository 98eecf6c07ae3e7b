"""What is timed of a fused layer: kernels with several tiles, those of torch, and other ways to multiply."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from mmb.models import _layer_steps as steps
from mmb.models import fused_layers
from mmb.models import masked_norm as norms
from mmb.models._layer_steps import TILES, Tile
from mmb.models.graph_isomorphism import GINLayer
from mmb.models.message_passing import _PassMessages, pass_messages

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from random_graphs import random_graphs

COPIES, DROPPED = 4, 6554
Variant = tuple[str, str, float, Callable[[int], Any]]  # group, name, bytes, call on one of several copies


@triton.jit(do_not_specialize=["count"])
def copied_kernel(
    a, b, out, sums, other, found, count, inner: tl.constexpr, outer: tl.constexpr, by_rows: tl.constexpr,
    kind: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    """`product_kernel` with tiles read by the tensor memory accelerator."""
    tiles = tl.cdiv(outer, columns)
    block, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    total = tl.zeros((rows, columns), tl.float32)
    for start in range(0, inner, depth):
        left_a = a.load([block * rows, start])
        left_b = b.load([tile * columns, start]).T if by_rows else b.load([start, tile * columns])
        total = tl.dot(left_a, left_b, total)
    row = block * rows + tl.arange(0, rows)
    column = tile * columns + tl.arange(0, columns)
    inside = column < outer
    place = row[:, None] * outer + column[None, :]
    both = (row < count)[:, None] & inside[None, :]
    if kind == "passed":
        value = tl.load(other + place, mask=both, other=0).to(tl.float32)
        scale = tl.load(found + column, mask=inside, other=0)
        shift = tl.load(found + outer + column, mask=inside, other=0)
        mean = tl.load(found + 2 * outer + column, mask=inside, other=0)
        inverse = tl.load(found + 3 * outer + column, mask=inside, other=0)
        total = tl.where(value * scale[None, :] + shift[None, :] > 0, total, 0.0)
        second = tl.sum(total * (value - mean[None, :]), 0) * inverse
    else:
        second = tl.sum(total * total, 0)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=both)
    if kind != "plain":
        blocks = tl.cdiv(count, rows)
        tl.store(sums + block * outer + column, tl.sum(total, 0), mask=inside)
        tl.store(sums + (blocks + block) * outer + column, second, mask=inside)


@triton.jit(do_not_specialize=["count"])
def normed_kernel(
    a, b, out, sums, found, count, inner: tl.constexpr, outer: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    """`product_kernel` of relu(scale a + shift) and b [outer, inner], without writing the former down."""
    tiles = tl.cdiv(outer, columns)
    block = tl.program_id(0) // tiles
    row = block * rows + tl.arange(0, rows)
    column = (tl.program_id(0) % tiles) * columns + tl.arange(0, columns)
    here, inside = row < count, column < outer
    step = tl.arange(0, depth)
    from_a = a + row[:, None] * inner + step[None, :]
    from_b = b + step[:, None] + column[None, :] * inner
    total = tl.zeros((rows, columns), tl.float32)
    for start in range(0, inner, depth):
        on = step < inner - start
        left_a = tl.load(from_a, mask=here[:, None] & on[None, :], other=0).to(tl.float32)
        scale = tl.load(found + start + step, mask=on, other=0)
        shift = tl.load(found + inner + start + step, mask=on, other=0)
        passed = tl.maximum(left_a * scale[None, :] + shift[None, :], 0.0)
        left_b = tl.load(from_b, mask=on[:, None] & inside[None, :], other=0)
        total = tl.dot(passed.to(left_b.dtype), left_b, total)
        from_a += depth
        from_b += depth
    place = row[:, None] * outer + column[None, :]
    tl.store(out + place, total.to(out.dtype.element_ty), mask=here[:, None] & inside[None, :])
    blocks = tl.cdiv(count, rows)
    tl.store(sums + block * outer + column, tl.sum(total, 0), mask=inside)
    tl.store(sums + (blocks + block) * outer + column, tl.sum(total * total, 0), mask=inside)


def copied(a, b, tile, kind="plain", other=None, found=None):
    """As `mmb.models._layer_steps.product`; b is `[m, k]`, or the transpose of a matrix by rows."""
    count, inner, outer = a.shape[0], a.shape[1], b.shape[0]
    by_rows = b.stride(1) == 1
    out = a.new_empty(count, outer)
    blocks = triton.cdiv(count, tile.rows)
    sums = a.new_empty(2, blocks if kind != "plain" else 0, outer, dtype=torch.float32)
    block_b = [tile.columns, tile.depth] if by_rows else [tile.depth, tile.columns]
    copied_kernel[(blocks * triton.cdiv(outer, tile.columns),)](
        TensorDescriptor.from_tensor(a, [tile.rows, tile.depth]),
        TensorDescriptor.from_tensor(b if by_rows else b.t(), block_b),
        out, sums, out if other is None else other, sums if found is None else found, count, inner, outer,
        by_rows, kind, tile.rows, tile.columns, tile.depth, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out, sums


def normed(a, b, tile, found):
    """The product of the normalized and passed a, with its moments."""
    count, inner, outer = a.shape[0], a.shape[1], b.shape[0]
    out = a.new_empty(count, outer)
    blocks = triton.cdiv(count, tile.rows)
    sums = a.new_empty(2, blocks, outer, dtype=torch.float32)
    normed_kernel[(blocks * triton.cdiv(outer, tile.columns),)](
        a, b, out, sums, found, count, inner, outer, tile.rows, tile.columns, tile.depth,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out, sums


class Case:
    """Random inputs of a layer in full size, the same in several copies, so that caches do not hold them."""

    def __init__(self, device: str, graphs: int, width: int) -> None:
        generator = torch.Generator().manual_seed(0)
        some = min(graphs, 256)
        store = random_graphs(some, generator, 16, 36)
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

    def features(self, rows: int | None = None) -> torch.Tensor:
        """Features of nodes, in bfloat16, without columns of padding."""
        return torch.randn(rows or self.room[0], self.width, device=self.device).relu().bfloat16()


def variants(options: argparse.Namespace) -> Iterator[Variant]:
    """Everything that is timed."""
    case = Case(options.device, options.graphs, options.width)
    batch, width = case.batch, case.width
    count, inner = case.room[0], 2 * width
    stride, extra = fused_layers.aligned(width), fused_layers.aligned(width) - width
    graph = (batch.edges, batch.bond_codes, batch.edge_ptr)
    real, seed = batch.graph_ptr[-2:-1], torch.tensor([5], device=case.device)
    layer = case.layer
    epsilon = layer.epsilon.detach()

    def narrow() -> list[torch.Tensor]:
        return [torch.nn.functional.pad(case.features(), (0, extra)) for _ in range(COPIES)]

    def wide() -> list[torch.Tensor]:
        return [torch.randn(count, inner, device=case.device).bfloat16() for _ in range(COPIES)]

    x, y, h, g = narrow(), narrow(), wide(), wide()
    bonds = torch.nn.functional.pad(case.features(60), (0, extra))
    into = steps.pad(layer.mlp.linear1.weight.detach(), torch.bfloat16)
    out = steps.pad(layer.mlp.linear2.weight.detach(), torch.bfloat16)
    found = torch.rand(6, inner, device=case.device) + 0.5
    found2 = torch.rand(6, stride, device=case.device) + 0.5
    unit = 2.0 * count * stride

    yield "copy", "wide", 4 * unit, lambda i: h[i].clone()
    for spec in ((16, 128, 4, 4), (8, 128, 4, 4), (16, 64, 4, 4), (32, 64, 4, 4), (8, 128, 2, 2)):
        tiles = replace(TILES, gather=spec)
        yield (
            "messages",
            " ".join(map(str, spec)),
            2 * unit,
            lambda i, t=tiles: steps.gather(x[i], bonds, epsilon, *graph, real, t),
        )
    thin = [value[:, :width].contiguous() for value in x]
    few = bonds[:, :width].contiguous()
    yield "messages", "today", 2 * unit, lambda i: pass_messages(thin[i], few, epsilon, batch)
    for spec in (
        (32, 64, 4, 4, 8, 3),
        (32, 64, 4, 4, 8, 1),
        (32, 64, 2, 4, 8, 1),
        (32, 64, 2, 4, 4, 1),
        (16, 128, 2, 4, 8, 1),
        (16, 64, 4, 4, 16, 1),
        (64, 64, 2, 8, 4, 1),
        (32, 128, 2, 8, 8, 1),
        (16, 64, 2, 4, 8, 2),
    ):
        tiles = replace(TILES, scatter=spec)
        yield (
            "messages back",
            " ".join(map(str, spec)),
            3 * unit,
            lambda i, t=tiles: steps.scatter(y[i], x[i], bonds, epsilon, *graph, real, t),
        )
    yield "messages back", "today", 3 * unit, today_back(thin, few, epsilon, y, batch)

    tiles_in = (
        Tile(128, 128, 64, 8, 3),
        Tile(128, 128, 64, 4, 3),
        Tile(128, 128, 32, 8, 4),
        Tile(128, 256, 64, 8, 3),
        Tile(128, 64, 64, 4, 4),
        Tile(64, 256, 64, 8, 3),
        Tile(64, 128, 64, 4, 4),
        Tile(256, 64, 64, 8, 3),
        Tile(256, 128, 64, 8, 3),
    )
    few_tiles = tiles_in[:2] + tiles_in[3:5] + tiles_in[8:]
    plain_ways = (("", steps.product, tiles_in), ("copied ", copied, few_tiles))
    for prefix, way, tiles in plain_ways:
        for tile in tiles:
            name = prefix + spell(tile)
            yield "product in", name, 3 * unit, lambda i, t=tile, w=way: w(x[i], into, t, "moments")
            yield "product out", name, 3 * unit, lambda i, t=tile, w=way: w(h[i], out, t, "moments")
            yield (
                "product back",
                name,
                5 * unit,
                lambda i, t=tile, w=way: w(y[i], out.t(), t, "passed", h[i], found),
            )
            yield "product to atoms", name, 3 * unit, lambda i, t=tile, w=way: w(h[i], into.t(), t)
    for tile in (tiles_in[0], tiles_in[1], tiles_in[4], Tile(64, 128, 64, 4, 3), Tile(128, 128, 32, 4, 3)):
        yield (
            "product out, norm first",
            spell(tile),
            3 * unit,
            lambda i, t=tile: normed(h[i], out, t, found),
        )
    yield "product in", "torch", 3 * unit, lambda i: x[i] @ into.t()
    yield "product out", "torch", 3 * unit, lambda i: h[i] @ out.t()
    yield "product back", "torch, nothing else", 3 * unit, lambda i: y[i] @ out
    yield "product to atoms", "torch", 3 * unit, lambda i: h[i] @ into
    for tile, pieces in (
        (Tile(128, 128, 64, 8, 3), 8),
        (Tile(128, 128, 64, 4, 3), 8),
        (Tile(128, 64, 64, 4, 4), 5),
        (Tile(64, 128, 64, 4, 4), 5),
        (Tile(128, 64, 64, 4, 4), 10),
        (Tile(128, 256, 64, 8, 3), 11),
        (Tile(128, 128, 128, 8, 2), 8),
    ):
        name = f"{spell(tile)} {pieces}"
        yield (
            "weights in",
            name,
            3 * unit,
            lambda i, t=tile, p=pieces: steps.transposed(g[i], x[i], t, p, inner, width),
        )
        yield (
            "weights out",
            name,
            3 * unit,
            lambda i, t=tile, p=pieces: steps.transposed(x[i], g[i], t, p, width, inner),
        )
    yield "weights in", "torch", 3 * unit, lambda i: (g[i].t() @ x[i])[:inner, :width].float().contiguous()
    yield "weights out", "torch", 3 * unit, lambda i: (x[i].t() @ g[i])[:width, :inner].float().contiguous()
    for rows, warps in ((64, 4), (32, 4), (128, 4), (128, 8), (16, 2)):
        tiles = replace(TILES, rows_of_norm=rows, warps_of_norm=warps)
        name = f"{rows}w{warps}"
        yield "norm 1", name, 4 * unit, lambda i, t=tiles: steps.norm(h[i], found, real, seed, True, 0, t)
        yield (
            "norm 2",
            name,
            2 * unit,
            lambda i, t=tiles: steps.norm(x[i], found2, real, seed, True, DROPPED, t),
        )
        yield (
            "norm 2 back",
            name,
            3 * unit,
            lambda i, t=tiles: steps.norm_backward(y[i], x[i], found2, found2, real, seed, True, DROPPED, t),
        )
        yield (
            "norm 1 back",
            name,
            6 * unit,
            lambda i, t=tiles: steps.norm_backward(g[i], h[i], found, found, real, seed, False, 0, t),
        )
    for rows, warps, turns in ((64, 4, 4), (32, 4, 4), (64, 4, 2), (32, 4, 8), (128, 8, 2)):
        tiles = replace(TILES, rows_of_norm=rows, warps_of_norm=warps, turns=turns)
        yield (
            "norm 2 sums",
            f"{rows}w{warps}t{turns}",
            2 * unit,
            lambda i, t=tiles: steps.norm_sums(y[i], x[i], found2, real, seed, True, DROPPED, t),
        )
    sums = torch.rand(2, count // 128, inner, device=case.device)
    norm = layer.mlp.norm1
    weight, bias, before = norm.weight.detach(), norm.bias.detach(), layer.mlp.linear1.bias.detach()
    yield "statistics", "forward", 0, lambda i: steps.statistics(sums, weight, bias, before, real, 1e-5)
    yield "statistics", "backward", 0, lambda i: steps.gradients(sums, found, real, inner)
    yield (
        "statistics",
        "pad a weight",
        0,
        lambda i: steps.pad(layer.mlp.linear1.weight.detach(), torch.bfloat16),
    )
    yield (
        "norm 1",
        "of torch, today uncompiled",
        4 * unit,
        lambda i: norms.by_kernels(h[i], weight, bias, batch.node_mask, 1e-5)[0],
    )
    drop = torch.nn.functional.dropout
    yield "norm 2", "dropout of torch alone", 2 * unit, lambda i: drop(x[i], 0.1)
    forward = forward_of(case, bonds, real, seed)
    kept = [forward(x[i]) for i in range(COPIES)]
    yield "layer", "forward", 14 * unit, lambda i: forward(x[i])
    yield (
        "layer",
        "backward",
        28 * unit,
        lambda i: fused_layers._backward(
            y[i], x[i], bonds, epsilon, *kept[i][1:], *graph, real, seed, width, inner, DROPPED, True
        ),
    )


def spell(tile: Any) -> str:
    """A tile, in short."""
    return f"{tile.rows}x{tile.columns}x{tile.depth}w{tile.warps}s{tile.stages}"


def forward_of(case: Case, bonds: torch.Tensor, real: torch.Tensor, seed: torch.Tensor) -> Callable[..., Any]:
    """The forward pass of a layer, as a function of its nodes."""
    batch, mlp = case.batch, case.layer.mlp
    pairs = ((mlp.linear1, mlp.norm1), (mlp.linear2, mlp.norm2))
    weights = [
        part.detach()
        for linear, norm in pairs
        for part in (linear.weight, norm.weight, norm.bias, linear.bias)
    ]

    def forward(nodes: torch.Tensor) -> list[torch.Tensor]:
        graph = (batch.edges, batch.bond_codes, batch.edge_ptr)
        found: list[torch.Tensor] = fused_layers._forward(
            nodes, bonds, case.layer.epsilon.detach(), *weights, *graph, real, seed, 1e-5, 1e-5, DROPPED, True
        )
        return found

    return forward


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
