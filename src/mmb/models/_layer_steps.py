"""The steps of a fused layer as launches of kernels; see `fused_layers`."""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from mmb.models import _layer_kernels as kernels
from mmb.models.message_operators import MOST_CODES, aligned

LOTS = 65536  # dropout is a number of these
COLUMNS = 64  # that a program normalizes
BLOCKS, FEW = 64, 16  # sums that are added at once, and columns per program


@dataclass(frozen=True)
class Tile:
    """How large a part of a matrix product is computed by a program, and how."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Tiles:
    """The tiles of all products of a layer, and how many parts products over rows are divided into."""

    into: Tile = Tile(128, 128, 64, 8, 3)
    out: Tile = Tile(128, 128, 64, 8, 3)
    back: Tile = Tile(128, 128, 64, 8, 3)
    rows_of_norm: int = 64
    warps_of_norm: int = 4
    turns: int = 4  # of `norm_sums_kernel`
    gather: tuple[int, int, int, int] = (16, 128, 4, 4)  # rows, columns, neighbors at once, warps
    scatter: tuple[int, int, int, int, int, int] = (32, 64, 4, 4, 8, 3)  # the same, turns, stages


TILES = Tiles()


def _precision(tensor: Tensor) -> str:
    return "ieee" if tensor.dtype == torch.float32 else "tf32"


def product(
    a: Tensor,
    b: Tensor,
    tile: Tile,
    kind: str = "plain",
    other: Tensor | None = None,
    found: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`a @ b.T` of `a [n, k]` and `b [m, k]`, and sums over blocks of rows, `[2, blocks, m]`.

    Args:
        a: Its rows lie one after another.
        b: Of any strides.
        tile: Of the output.
        kind: "plain" sums nothing; "moments" sums the output and its squares; "passed" sets the output to
            zero where the normalized `other` is not positive, and sums it and its products with xhat.
        other: Of the output's shape; for "passed" only.
        found: By `statistics`, of `other`.
    """
    count, inner, outer = a.shape[0], a.shape[1], b.shape[0]
    out = a.new_empty(count, outer)
    blocks = triton.cdiv(count, tile.rows)
    sums = a.new_empty(2, blocks if kind != "plain" else 0, outer, dtype=torch.float32)
    grid = (blocks * triton.cdiv(outer, tile.columns),)
    kernels.product_kernel[grid](
        a, b, out, sums, out if other is None else other, sums if found is None else found, count,
        inner, outer, b.stride(0), b.stride(1), kind, _precision(a), tile.rows, tile.columns, tile.depth,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out, sums


def transposed(a: Tensor, b: Tensor, tile: Tile, pieces: int, high: int, wide: int) -> Tensor:
    """The first rows and columns `[high, wide]` of `a.T @ b`, in float32."""
    count, left, right = a.shape[0], a.shape[1], b.shape[1]
    parts = a.new_empty(pieces, left, right, dtype=torch.float32)
    grid = (triton.cdiv(left, tile.rows) * triton.cdiv(right, tile.columns), pieces)
    kernels.transposed_kernel[grid](
        a, b, parts, count, left, right, pieces, _precision(a), tile.rows, tile.columns, tile.depth,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return add_parts(parts, high, wide)


def add_parts(parts: Tensor, high: int, wide: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The sum `[high, wide]` over the first axis of `[pieces, left, right]`."""
    out = parts.new_empty(high, wide, dtype=dtype)
    grid = (triton.cdiv(high * wide, 1024),)
    kernels.add_parts_kernel[grid](parts, out, high, wide, *parts.shape[1:], len(parts), 1024)
    return out


def pad(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """A weight with rows and columns of zeros up to the next aligned size."""
    high, wide = weight.shape
    out = weight.new_empty(aligned(high), aligned(wide), dtype=dtype)
    grid = (triton.cdiv(out.numel(), 1024),)
    kernels.pad_kernel[grid](weight, out, high, wide, out.shape[1], 1024, out.numel())
    return out


def statistics(
    sums: Tensor, weight: Tensor, bias: Tensor, before: Tensor, real: Tensor, eps: float
) -> Tensor:
    """Scale, shift, mean, 1 / deviation, and the moments to be averaged, `[6, stride]`, from sums.

    The product is without its bias `before`, which only moves the mean.
    """
    found = sums.new_empty(6, sums.shape[2])
    grid = (triton.cdiv(sums.shape[2], FEW),)
    kernels.statistics_kernel[grid](
        sums, weight, bias, before, real, found, sums.shape[1], len(weight), eps, sums.shape[2], BLOCKS, FEW
    )
    return found


def gradients(sums: Tensor, found: Tensor, real: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Factors for `norm_backward`, and the gradients of the norm's weight and bias."""
    factors = sums.new_empty(2, sums.shape[2])
    by_weight, by_bias = sums.new_empty(width), sums.new_empty(width)
    grid = (triton.cdiv(sums.shape[2], FEW),)
    kernels.gradients_kernel[grid](
        sums, found, real, factors, by_weight, by_bias, sums.shape[1], width, sums.shape[2], BLOCKS, FEW
    )
    return factors, by_weight, by_bias


def norm(
    x: Tensor, found: Tensor, real: Tensor, seed: Tensor, relu: bool, dropped: int, tiles: Tiles = TILES
) -> Tensor:
    """`dropout(relu(scale x + shift))`, of the real rows."""
    out = torch.empty_like(x)
    count, stride = x.shape
    grid = (triton.cdiv(count, tiles.rows_of_norm), triton.cdiv(stride, COLUMNS))
    kernels.norm_kernel[grid](
        x, found, out, real, seed, count, stride, relu, dropped, tiles.rows_of_norm, COLUMNS,
        num_warps=tiles.warps_of_norm,
    )  # fmt: skip
    return out


def norm_sums(
    grad: Tensor,
    x: Tensor,
    found: Tensor,
    real: Tensor,
    seed: Tensor,
    relu: bool,
    dropped: int,
    tiles: Tiles = TILES,
) -> Tensor:
    """Sums of dy and dy xhat over blocks of rows, `[2, blocks, stride]`."""
    count, stride = x.shape
    blocks = triton.cdiv(count, tiles.rows_of_norm * tiles.turns)
    sums = found.new_empty(2, blocks, stride)
    kernels.norm_sums_kernel[(blocks, triton.cdiv(stride, COLUMNS))](
        grad, x, found, sums, real, seed, count, stride, relu, dropped, tiles.rows_of_norm, COLUMNS,
        tiles.turns, num_warps=tiles.warps_of_norm,
    )  # fmt: skip
    return sums


def norm_backward(
    grad: Tensor,
    x: Tensor,
    found: Tensor,
    factors: Tensor,
    real: Tensor,
    seed: Tensor,
    relu: bool,
    dropped: int,
    tiles: Tiles = TILES,
) -> Tensor:
    """The gradient of `x`."""
    out = torch.empty_like(x)
    count, stride = x.shape
    grid = (triton.cdiv(count, tiles.rows_of_norm), triton.cdiv(stride, COLUMNS))
    kernels.norm_backward_kernel[grid](
        grad, x, found, factors, out, real, seed, count, stride, relu, dropped, tiles.rows_of_norm, COLUMNS,
        num_warps=tiles.warps_of_norm,
    )  # fmt: skip
    return out


def gather(
    x: Tensor,
    bonds: Tensor,
    epsilon: Tensor,
    edges: Tensor,
    codes: Tensor,
    ptr: Tensor,
    real: Tensor,
    tiles: Tiles = TILES,
) -> Tensor:
    """Nodes and the messages to them."""
    out = torch.empty_like(x)
    rows, columns, ahead, warps = tiles.gather
    grid = (triton.cdiv(len(x), rows), triton.cdiv(x.shape[1], columns))
    kernels.gather_kernel[grid](
        x, bonds, epsilon, edges, codes, ptr, real, out, len(x), len(codes), x.shape[1], rows, columns, ahead,
        num_warps=warps,
    )  # fmt: skip
    return out


def scatter(
    grad: Tensor,
    x: Tensor,
    bonds: Tensor,
    epsilon: Tensor,
    edges: Tensor,
    codes: Tensor,
    ptr: Tensor,
    real: Tensor,
    tiles: Tiles = TILES,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of nodes, bonds and epsilon."""
    out, known = torch.empty_like(x), len(bonds)
    rows, columns, ahead, warps, turns, stages = tiles.scatter
    blocks = triton.cdiv(len(x), rows * turns)
    parts = x.new_empty(blocks, known + 1, x.shape[1], dtype=torch.float32)
    kernels.scatter_kernel[(blocks, triton.cdiv(x.shape[1], columns))](
        grad, x, bonds, epsilon, edges, codes, ptr, real, out, parts, len(x), len(codes), known, x.shape[1],
        rows, columns, turns, ahead, MOST_CODES, _precision(x), num_warps=warps, num_stages=stages,
    )  # fmt: skip
    both = add_parts(parts, known + 1, x.shape[1])
    return out, both[:known].to(bonds.dtype), both[known].sum().reshape(epsilon.shape).to(epsilon.dtype)


def mean(x: Tensor, ptr: Tensor) -> Tensor:
    """Means over the nodes of all graphs but the last, `[graphs - 1, stride]`."""
    out = x.new_empty(len(ptr) - 2, x.shape[1])
    grid = (len(out), triton.cdiv(x.shape[1], COLUMNS))
    kernels.mean_kernel[grid](x, ptr, out, x.shape[1], 32, COLUMNS)
    return out


def mean_backward(grad: Tensor, graph: Tensor, ptr: Tensor) -> Tensor:
    """The gradient of the nodes."""
    out = grad.new_empty(len(graph), grad.shape[1])
    grid = (triton.cdiv(len(graph), 32), triton.cdiv(grad.shape[1], COLUMNS))
    kernels.mean_backward_kernel[grid](
        grad, graph, ptr, out, len(graph), len(grad), grad.shape[1], 32, COLUMNS
    )
    return out
