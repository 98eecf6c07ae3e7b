"""The sparse half of a graph network: reading rows by index, and adding rows up by index.

Plain tensor operations, chosen because they are differentiable any number of times and in both modes, are
traced by `torch.compile` without a break, and have direct rules under `torch.func.vmap` (`index_add`
is run in a loop there; `torch.segment_reduce` cannot be differentiated twice, and takes nine times as
long on a CPU). On a GPU, `fused_messages` has kernels for the whole layer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mmb.data.inputs.graphs import GraphBatch


def gather_rows(table: Tensor, index: Tensor) -> Tensor:
    """`table[index]`: `[rows, width]` and `int64 [n]` to `[n, width]`."""
    return torch.nn.functional.embedding(index, table)


def sum_rows(values: Tensor, index: Tensor, rows: int) -> Tensor:
    """Add up rows by index: row `r` of the result is the sum of the `values[i]` with `index[i] = r`.

    Args:
        values: `[n, width]`.
        index: `int64 [n]`, each below `rows`.
        rows: Number of rows of the result.

    Returns:
        `[rows, width]`, added up in and left in float32 where `values` are of lower precision.
    """
    wide = values.to(torch.promote_types(values.dtype, torch.float32))
    columns = index.unsqueeze(1).expand(-1, values.shape[1])
    return wide.new_zeros(rows, values.shape[1]).scatter_add(0, columns, wide)


def aggregate(nodes: Tensor, bonds: Tensor, batch: GraphBatch) -> Tensor:
    r"""Messages from the neighbours, $\sum_{u \to v} \mathrm{relu}(x_u + e_{uv})$ for every node `v`.

    Args:
        nodes: Features `x` of the nodes, `[N, width]`.
        bonds: Features of each row of `batch.bond_table`, `[B, width]`; `e_{uv}` is a row of it.
        batch: The graphs.

    Returns:
        `[N, width]`, in float32 or the precision of `nodes` where that is higher.
    """
    source, target = batch.edges.unbind(0)
    messages = gather_rows(nodes, source) + gather_rows(bonds.to(nodes.dtype), batch.bond_codes)
    return sum_rows(messages.relu_(), target, nodes.shape[0])
