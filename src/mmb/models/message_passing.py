"""The sparse half of a graph network: looking rows up by index, and adding rows up by index.

Plain tensor operations, chosen because they can be differentiated any number of times and in both modes, are
traced by `torch.compile` without a break, and have direct rules under `torch.func.vmap` (`index_add` runs in
a loop there; `torch.segment_reduce` cannot be differentiated twice, and takes nine times as long on a CPU).
On a GPU, `fused_messages` has kernels for the whole layer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mmb.data.inputs.graphs import GraphBatch


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
    messages = look_up_rows(nodes, source) + look_up_rows(bonds.to(nodes.dtype), batch.bond_codes)
    return sum_rows(messages.relu_(), target, nodes.shape[0])
