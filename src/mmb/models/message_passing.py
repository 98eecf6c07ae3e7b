r"""The sparse half of a graph network: looking rows up by index, and passing messages along edges.

A layer computes, for every node $v$,

$$
o_v = (1 + \epsilon) x_v + \sum_{u \to v} \mathrm{relu}(x_u + e_{uv}).
$$

On a CPU this takes plain tensor operations, chosen because they can be differentiated any number of times and
in both modes, are traced by `torch.compile` without a break, and have direct rules under `torch.func.vmap`
(`index_add` runs in a loop there; `torch.segment_reduce` cannot be differentiated twice, and takes nine times
as long).

On a GPU, `pass_messages` takes one pass over memory for nodes whose incoming edges lie in a row
(`GraphBatch.edge_ptr`), and does not write messages to memory. Every bond is two edges with the same
features, so the edges out of a node are the reversed edges into it: the backward pass is a sum over incoming
edges too, and needs no atomic adds:

$$
\bar x_v = (1 + \epsilon) \bar o_v + \sum_{u \to v} [x_v + e_{uv} > 0]\, \bar o_u
$$

Bonds have few distinct feature vectors; their gradients are sums over edges by code, which a tensor core
computes as a product with a matrix of ones and zeros. Rows of the result are padded with zeros to a multiple
of 16 bytes, so that the matrix products that follow run at full speed. Under `torch.vmap`, as with one set of
weights per task, `message_operators` takes over, whose derivatives can be differentiated again.
"""

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor
from torch.autograd.function import once_differentiable

from mmb.data.inputs.graphs import GraphBatch, PaddedGraphs
from mmb.models.message_operators import (
    BOND_COLUMNS,
    COLUMNS,
    EDGES,
    MOST_CODES,
    ROWS,
    TURNS,
    aligned,
    dot_precision,
    messages,
)

try:
    import triton

    from mmb.models import _message_kernels as kernels
except ImportError:  # without Triton there are no GPU kernels: plain operations serve
    triton = None


def look_up_rows(table: Tensor, index: Tensor) -> Tensor:
    """`table[index]`: `[rows, width]` and `int64 [n]` to `[n, width]`."""
    return torch.nn.functional.embedding(index, table)


def sum_rows(values: Tensor, index: Tensor, rows: int) -> Tensor:
    """Sums `[rows, width]` of the `values [n, width]` with the same `index [n]`, in float32 at least."""
    wide = values.to(torch.promote_types(values.dtype, torch.float32))
    columns = index.unsqueeze(1).expand(-1, values.shape[1])
    return wide.new_zeros(rows, values.shape[1]).scatter_add(0, columns, wide)


def aggregate(nodes: Tensor, bonds: Tensor, batch: GraphBatch) -> Tensor:
    r"""Messages from the neighbors, $\sum_{u \to v} \mathrm{relu}(x_u + e_{uv})$ for every node `v`.

    The nodes' features `x` are `[N, width]`; `e_{uv}` is one of the features `[B, width]` of the rows of
    `batch.bond_table`. The result is `[N, width]`, in float32 at least.
    """
    source, target = batch.edges.unbind(0)
    sent = look_up_rows(nodes, source) + look_up_rows(bonds.to(nodes.dtype), batch.bond_codes)
    return sum_rows(sent.relu_(), target, nodes.shape[0])


def pass_messages(nodes: Tensor, bonds: Tensor, epsilon: Tensor, batch: GraphBatch) -> Tensor:
    """$o$ by the kernels, `[N, aligned(width)]`, zero beyond `width`, with inputs as in `aggregate`.

    There are at most 64 bonds; every edge of the batch must be there in both directions, with the same bond.
    """
    bonds = bonds.to(nodes.dtype)
    graph = (batch.edges, batch.bond_codes, batch.edge_ptr)
    if type(batch) is PaddedGraphs or any(map(is_batchedtensor, (nodes, bonds, epsilon))):
        one_task = (epsilon, nodes.unsqueeze(0), bonds.unsqueeze(0), None, None)
        return messages(*one_task, *(index.unsqueeze(0) for index in graph)).squeeze(0)
    output: Tensor = _PassMessages.apply(  # type: ignore[no-untyped-call]
        nodes.contiguous(), bonds.contiguous(), epsilon, *graph
    )
    return output


class _PassMessages(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, nodes: Tensor, bonds: Tensor, epsilon: Tensor, edges: Tensor, codes: Tensor, ptr: Tensor
    ) -> Tensor:
        count, width = nodes.shape
        out = nodes.new_empty(count, aligned(width))
        sizes = (count, codes.shape[0], bonds.shape[0], width, out.shape[1])
        grid = (triton.cdiv(count, ROWS), triton.cdiv(out.shape[1], COLUMNS), 1)
        kernels.forward_kernel[grid](
            nodes, bonds, nodes, bonds, epsilon, edges, codes, ptr, out, *sizes, ROWS, COLUMNS, True
        )
        ctx.save_for_backward(nodes, bonds, epsilon, edges, codes, ptr)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        nodes, bonds, epsilon, edges, codes, ptr = ctx.saved_tensors
        grad = grad.contiguous()
        count, width = nodes.shape
        grad_nodes = torch.empty_like(nodes)
        grad_bonds = torch.zeros_like(bonds, dtype=torch.float32)
        grad_epsilon = torch.zeros_like(epsilon, dtype=torch.float32)
        sizes = (count, codes.shape[0], bonds.shape[0], width, grad.shape[1])
        grid = (triton.cdiv(count, ROWS), triton.cdiv(width, COLUMNS), 1)
        kernels.backward_kernel[grid](
            grad, nodes, bonds, epsilon, edges, codes, ptr, grad_nodes, grad_epsilon, *sizes,
            ROWS, COLUMNS, True,
        )  # fmt: skip
        grid = (triton.cdiv(codes.shape[0], EDGES * TURNS), triton.cdiv(width, BOND_COLUMNS), 1)
        kernels.bonds_kernel[grid](
            grad, nodes, bonds, edges, codes, ptr, grad_bonds, *sizes,
            MOST_CODES, EDGES, BOND_COLUMNS, TURNS, dot_precision(nodes),
        )  # fmt: skip
        return grad_nodes, grad_bonds.to(bonds.dtype), grad_epsilon.to(epsilon.dtype), None, None, None
