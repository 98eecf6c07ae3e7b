r"""Message passing in one pass over memory, for GPUs.

For nodes with incoming edges in a row (`GraphBatch.edge_ptr`) it computes

$$
o_v = (1 + \epsilon) x_v + \sum_{u \to v} \mathrm{relu}(x_u + e_{uv})
$$

without writing messages down. Every bond is two edges with the same features, so the edges out of a node are
the edges into it turned round: the backward pass is a sum over incoming edges too, and needs no atomic adds:

$$
\bar x_v = (1 + \epsilon) \bar o_v + \sum_{u \to v} [x_v + e_{uv} > 0]\, \bar o_u
$$

Bonds have few distinct feature vectors; their gradients are sums over edges by code, which a tensor core does
as a product with a matrix of ones and zeros.

Rows of the result are padded with zeros to a multiple of 16 bytes, which the matrix products that follow need
to run at full speed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mmb.data.graphs import GraphBatch, PaddedGraphs

try:
    import triton

    from mmb.models import _message_kernels as kernels
except ImportError:  # no Triton, no GPU kernels: the plain operations serve
    triton = None


ALIGNMENT = 8  # columns; 16 bytes of bfloat16
MOST_CODES = 64  # distinct bonds the kernel can tell apart
_ROWS, _COLUMNS = 8, 128  # nodes and features a program handles
_EDGES, _TURNS, _BOND_COLUMNS = 64, 8, 64  # edges per product, products per program, features


def available(nodes: Tensor, batch: GraphBatch) -> bool:
    """Whether the kernels can run: on a GPU, and not on graphs stacked for `torch.func.vmap`."""
    return triton is not None and nodes.is_cuda and type(batch) is not PaddedGraphs


def aligned(width: int) -> int:
    """The width, padded to a multiple of the alignment."""
    return -(-width // ALIGNMENT) * ALIGNMENT


def pass_messages(nodes: Tensor, bonds: Tensor, epsilon: Tensor, batch: GraphBatch) -> Tensor:
    """Own features and messages of the neighbours; see the module.

    Args:
        nodes: `x`, `[N, width]`.
        bonds: Features of each row of `batch.bond_table`, `[B, width]`; at most 64 rows.
        epsilon: `[1]`.
        batch: The graphs. An edge and its reverse must both be there, with the same bond.

    Returns:
        `[N, aligned(width)]`, of the nodes' type; zero beyond `width`.
    """
    output: Tensor = _PassMessages.apply(  # type: ignore[no-untyped-call]
        nodes.contiguous(),
        bonds.to(nodes.dtype).contiguous(),
        epsilon,
        batch.edges,
        batch.bond_codes,
        batch.edge_ptr,
    )
    return output


class _PassMessages(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, nodes: Tensor, bonds: Tensor, epsilon: Tensor, edges: Tensor, codes: Tensor, ptr: Tensor
    ) -> Tensor:
        count, width = nodes.shape
        out = nodes.new_empty(count, aligned(width))
        grid = (triton.cdiv(count, _ROWS), triton.cdiv(out.shape[1], _COLUMNS))
        kernels.forward_kernel[grid](
            nodes, bonds, epsilon, edges, codes, ptr, out, count, width, out.shape[1], _ROWS, _COLUMNS
        )
        ctx.save_for_backward(nodes, bonds, epsilon, edges, codes, ptr)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        nodes, bonds, epsilon, edges, codes, ptr = ctx.saved_tensors
        grad = grad.contiguous()
        (count, width), stride, edge_count = nodes.shape, grad.shape[1], codes.shape[0]
        grad_nodes = torch.empty_like(nodes)
        grad_bonds = torch.zeros_like(bonds, dtype=torch.float32)
        grad_epsilon = torch.zeros_like(epsilon, dtype=torch.float32)
        grid = (triton.cdiv(count, _ROWS), triton.cdiv(width, _COLUMNS))
        kernels.backward_kernel[grid](
            grad, nodes, bonds, epsilon, edges, codes, ptr, grad_nodes, grad_epsilon, count, width, stride,
            _ROWS, _COLUMNS,
        )  # fmt: skip
        grid = (triton.cdiv(edge_count, _EDGES * _TURNS), triton.cdiv(width, _BOND_COLUMNS))
        precision = "ieee" if nodes.dtype == torch.float32 else "tf32"
        kernels.bonds_kernel[grid](
            grad, nodes, bonds, edges[0], edges[1], codes, grad_bonds, edge_count, bonds.shape[0], width,
            stride, MOST_CODES, _EDGES, _BOND_COLUMNS, _TURNS, precision,
        )  # fmt: skip
        return grad_nodes, grad_bonds.to(bonds.dtype), grad_epsilon.to(epsilon.dtype), None, None, None
