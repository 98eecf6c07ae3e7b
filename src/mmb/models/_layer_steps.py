"""The steps of a fused layer as launches of kernels; see `fused_layers`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from mmb.models import _layer_kernels as kernels
from mmb.models.message_operators import MOST_CODES, dot_precision

LOTS = 65536  # dropout is a number of these
ALIGNMENT = 16  # columns; 32 bytes of bfloat16, what memory moves at once
COLUMNS = 64  # that a program normalizes
COUNTERS = 1024  # of the programs that have written their sums: for each of four steps
CHUNK = 32  # sums that are added at once


@dataclass(frozen=True)
class Tiles:
    """What programs do at once."""

    statistics: tuple[int, int, int, int] = (64, 1, 64, 4)  # rows, tiles at once, blocks of rows, warps
    gradients: tuple[int, int, int, int] = (32, 2, 64, 4)  # the same
    norm: tuple[int, int, int] = (32, 64, 4)  # rows, columns, warps
    backward: tuple[int, int, int] = (32, 64, 4)  # the same
    gather: tuple[int, int, int, int] = (8, 128, 2, 2)  # rows, columns, neighbors at once, warps
    scatter: tuple[int, int, int, int] = (8, 128, 2, 2)  # the same
    bonds: tuple[int, int, int, int, int] = (64, 64, 4, 4, 1)  # edges, columns, turns, warps, stages
    both: tuple[int, int, int, int, int, int] | None = None  # nodes, edges, columns, turns, warps, stages
    mean: tuple[int, int, int] = (32, 64, 1)  # rows, columns, warps


TILES = Tiles()


class Graph(NamedTuple):
    """The edges of a batch."""

    edges: Tensor
    codes: Tensor
    ptr: Tensor
    real: Tensor  # number of nodes


def aligned(width: int) -> int:
    """The width, rounded up to a multiple of the alignment."""
    return -(-width // ALIGNMENT) * ALIGNMENT


def pad(one: Tensor, other: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Two weights `[m, n]` and `[n, m]` with zeros up to the next aligned size; last, counters at zero."""
    high, wide = (aligned(size) for size in one.shape)
    outs = one.new_empty(high, wide, dtype=dtype), one.new_empty(wide, high, dtype=dtype)
    done = one.new_empty(4, COUNTERS // 4, dtype=torch.int32)
    _copy(one, other, outs, done, one.shape, COUNTERS)
    return *outs, done


def cut(one: Tensor, other: Tensor, high: int, wide: int) -> tuple[Tensor, Tensor]:
    """The first `[high, wide]` and `[wide, high]` of two matrices, in float32."""
    outs = (
        one.new_empty(high, wide, dtype=torch.float32),
        one.new_empty(wide, high, dtype=torch.float32),
    )
    _copy(one, other, outs, outs[0], (high, wide), 0)
    return outs


def _copy(
    one: Tensor, other: Tensor, outs: tuple[Tensor, Tensor], done: Tensor, sizes: Sequence[int], counters: int
) -> None:
    grid = (triton.cdiv(outs[0].numel(), 1024), 2)
    (rows, columns), (other_rows, other_columns) = (out.shape for out in outs)
    kernels.copy_kernel[grid](
        one, other, *outs, done, *sizes, rows, other_rows, one.shape[1], other.shape[1], columns,
        other_columns, counters, 1024,
    )  # fmt: skip


def _blocks(x: Tensor, rows: int, blocks: int) -> tuple[int, tuple[int, int], Tensor]:
    """Rows of every block, the grid, and room for sums."""
    count, stride = x.shape
    each = triton.cdiv(count, blocks * rows) * rows
    grid = (triton.cdiv(count, each), triton.cdiv(stride, COLUMNS))
    return each, grid, x.new_empty(2, grid[0], stride, dtype=torch.float32)


def statistics(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    before: Tensor,
    real: Tensor,
    done: Tensor,
    eps: float,
    tiles: Tiles | None = None,
) -> Tensor:
    """Scale, shift, mean, 1 / deviation, and the moments to be averaged, `[6, stride]`.

    The product `x` is without its bias `before`, which only moves the mean.
    """
    rows, ahead, blocks, warps = (tiles or TILES).statistics
    each, grid, sums = _blocks(x, rows * ahead, blocks)
    found = sums.new_empty(6, x.shape[1])
    kernels.statistics_kernel[grid](
        x, sums, done, weight, bias, before, real, found, each, len(weight), eps, x.shape[1],
        rows, ahead, COLUMNS, CHUNK, num_warps=warps,
    )  # fmt: skip
    return found


def gradients(
    grad: Tensor,
    x: Tensor,
    found: Tensor,
    real: Tensor,
    seed: Tensor,
    done: Tensor,
    width: int,
    relu: bool,
    dropped: int,
    times: float,
    tiles: Tiles | None = None,
) -> list[Tensor]:
    """Factors for `norm_backward`, and gradients of the norm's weight and bias, and of a bias before it."""
    rows, ahead, blocks, warps = (tiles or TILES).gradients
    each, grid, sums = _blocks(x, rows * ahead, blocks)
    factors = sums.new_empty(2, x.shape[1])
    outputs = [factors, *(sums.new_empty(width) for _ in range(3))]
    kernels.gradients_kernel[grid](
        grad, x, found, sums, done, real, seed, *outputs, each, width, times, x.shape[1], relu, dropped,
        rows, ahead, COLUMNS, CHUNK, num_warps=warps,
    )  # fmt: skip
    return outputs


def norm(
    x: Tensor, found: Tensor, real: Tensor, seed: Tensor, relu: bool, dropped: int, tiles: Tiles | None = None
) -> Tensor:
    """`dropout(relu(scale x + shift))`, of the real rows."""
    out = torch.empty_like(x)
    count, stride = x.shape
    rows, columns, warps = (tiles or TILES).norm
    grid = (triton.cdiv(count, rows), triton.cdiv(stride, columns))
    kernels.norm_kernel[grid](
        x, found, out, real, seed, count, stride, relu, dropped, rows, columns, num_warps=warps
    )
    return out


def norm_backward(
    grad: Tensor,
    x: Tensor,
    found: Tensor,
    factors: Tensor,
    real: Tensor,
    seed: Tensor,
    relu: bool,
    dropped: int,
    times: float,
    tiles: Tiles | None = None,
) -> Tensor:
    """The gradient of `x`, from that of the features; before it is multiplied, `times` is a factor of it."""
    out = torch.empty_like(x)
    count, stride = x.shape
    rows, columns, warps = (tiles or TILES).backward
    grid = (triton.cdiv(count, rows), triton.cdiv(stride, columns))
    kernels.norm_backward_kernel[grid](
        grad, x, found, factors, out, real, seed, count, times, stride, relu, dropped, rows, columns,
        num_warps=warps,
    )  # fmt: skip
    return out


def gather(
    x: Tensor,
    bonds: Tensor,
    epsilon: Tensor,
    graph: Graph,
    tiles: Tiles | None = None,
) -> Tensor:
    """Nodes and the messages to them."""
    out = torch.empty_like(x)
    rows, columns, ahead, warps = (tiles or TILES).gather
    grid = (triton.cdiv(len(x), rows), triton.cdiv(x.shape[1], columns))
    kernels.gather_kernel[grid](
        x, bonds, epsilon, *graph, out, len(x), x.shape[1], rows, columns, ahead,
        num_warps=warps,
    )  # fmt: skip
    return out


def scatter(
    grad: Tensor,
    x: Tensor,
    bonds: Tensor,
    epsilon: Tensor,
    graph: Graph,
    passed: bool,
    tiles: Tiles | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradients of the nodes, and of the bonds with one more row, which starts with that of epsilon."""
    by_bonds = x.new_zeros(len(bonds) + 1, x.shape[1], dtype=torch.float32)
    both = (tiles or TILES).both
    if both is None:
        out = scatter_to_nodes(grad, x, bonds, epsilon, graph, by_bonds[-1], passed, tiles)
        scatter_to_bonds(grad, x, bonds, graph, by_bonds, tiles)
        return out, by_bonds
    out = torch.empty_like(x)
    rows, chunk, columns, turns, warps, stages = both
    grid = (triton.cdiv(len(x), rows * turns), triton.cdiv(x.shape[1], columns))
    kernels.both_kernel[grid](
        grad, x, bonds, epsilon, *graph, out, by_bonds, len(x), len(graph.codes), len(bonds), x.shape[1],
        passed, MOST_CODES, rows, chunk, columns, turns, dot_precision(x), num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out, by_bonds


def scatter_to_nodes(
    grad: Tensor,
    x: Tensor,
    bonds: Tensor,
    epsilon: Tensor,
    graph: Graph,
    by_epsilon: Tensor,
    passed: bool,
    tiles: Tiles | None = None,
) -> Tensor:
    """The gradient of the nodes; adds that of epsilon."""
    out = torch.empty_like(x)
    rows, columns, ahead, warps = (tiles or TILES).scatter
    grid = (triton.cdiv(len(x), rows), triton.cdiv(x.shape[1], columns))
    kernels.scatter_kernel[grid](
        grad, x, bonds, epsilon, *graph, out, by_epsilon, len(x), x.shape[1], passed, rows, columns, ahead,
        num_warps=warps,
    )  # fmt: skip
    return out


def scatter_to_bonds(
    grad: Tensor, x: Tensor, bonds: Tensor, graph: Graph, by_bonds: Tensor, tiles: Tiles | None = None
) -> None:
    """Add the gradients of the bonds."""
    chunk, columns, turns, warps, stages = (tiles or TILES).bonds
    grid = (triton.cdiv(len(graph.codes), chunk * turns), triton.cdiv(x.shape[1], columns))
    kernels.bonds_kernel[grid](
        grad, x, bonds, *graph, by_bonds, len(graph.codes), len(bonds), x.shape[1], MOST_CODES, chunk,
        columns, turns, dot_precision(x), num_warps=warps, num_stages=stages,
    )  # fmt: skip


def mean(x: Tensor, ptr: Tensor, tiles: Tiles | None = None) -> Tensor:
    """Means over the nodes of all graphs but the last, `[graphs - 1, stride]`."""
    out = x.new_empty(len(ptr) - 2, x.shape[1])
    rows, columns, warps = (tiles or TILES).mean
    grid = (len(out), triton.cdiv(x.shape[1], columns))
    kernels.mean_kernel[grid](x, ptr, out, x.shape[1], rows, columns, num_warps=warps)
    return out


def mean_backward(grad: Tensor, graph: Tensor, ptr: Tensor) -> Tensor:
    """The gradient of the nodes."""
    out = grad.new_empty(len(graph), grad.shape[1])
    grid = (triton.cdiv(len(graph), 32), triton.cdiv(grad.shape[1], COLUMNS))
    kernels.mean_backward_kernel[grid](
        grad, graph, ptr, out, len(graph), len(grad), grad.shape[1], 32, COLUMNS
    )
    return out
