"""Graph isomorphism network for molecules, as in the Open Graph Benchmark."""

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from mmb.data.inputs.graphs import ATOM_DIMS, BOND_DIMS, GraphBatch, PaddedGraphs
from mmb.models.batch_norm import MaskedBatchNorm
from mmb.models.fused_layers import FusedLayers, can_fuse
from mmb.models.message_operators import ALIGNMENT, in_kernels
from mmb.models.message_passing import aggregate, look_up_rows, pass_messages, sum_rows
from mmb.models.multitask import MultiTask


def gin(
    num_tasks: int, layers: int = 5, width: int = 300, dropout: float = 0.5, virtual_node: bool = False
) -> MultiTask:
    """Graph isomorphism network, and one head per task on the mean over the atoms.

    Args:
        num_tasks: Number of heads.
        layers: Number of message-passing layers.
        width: Width of the node features.
        dropout: Share of the features dropped after each layer in training.
        virtual_node: Add a node that is joined to all atoms of its molecule.

    Returns:
        A `MultiTask` model of a [`GraphBatch`][mmb.data.inputs.graphs.GraphBatch]: logits `[G, num_tasks]`.

    Raises:
        ValueError: If a number is out of its range.
    """
    return MultiTask(GIN(layers, width, dropout, virtual_node), width, num_tasks)


class GIN(nn.Module):
    r"""Features of molecules, by message passing.

    Layer $l$ computes, for every atom $v$ with bonds $u \to v$,

    $$
    x_v \leftarrow \mathrm{dropout}(\mathrm{relu}(\mathrm{norm}(\mathrm{MLP}(
    (1 + \epsilon) x_v + \sum_{u \to v} \mathrm{relu}(x_u + e_{uv})))))
    $$

    (the last layer without the outer relu), starting from the sum of the embeddings of the atom's features;
    $e_{uv}$ is the sum of the layer's own embeddings of the bond's features. A molecule's features are
    the mean of its atoms'. With a virtual node $z$, which starts at a learned vector (zero at first),
    every layer adds it to its molecule's atoms before their messages, and then, except in the last layer,
    moves it:

    $$
    z \leftarrow \mathrm{dropout}(\mathrm{relu}(\mathrm{norm}(\mathrm{MLP}(z + \sum_v x_v))))
    $$

    Embeddings are summed once for every distinct feature vector in the data, not for every atom and bond, and
    looked up from there. Batch norm takes its statistics over all atoms of the batch; see
    `mmb.models.batch_norm` for task-sampled and compositional batches. To evaluate it at one set of weights
    per task, `vmap` over `mmb.models.task_graphs.stack_tasks`.

    The arguments are those of `gin`.
    """

    def __init__(self, layers: int, width: int, dropout: float, virtual_node: bool) -> None:
        super().__init__()
        if layers < 1 or width < 1 or not 0 <= dropout < 1:
            raise ValueError(
                f"need layers >= 1, width >= 1 and 0 <= dropout < 1, got {layers}, {width} and {dropout}"
            )
        self.dropout = dropout
        self.atoms = FeatureEmbedding(ATOM_DIMS, width)
        self.layers = nn.ModuleList(GINLayer(width) for _ in range(layers))
        self.virtual = nn.Parameter(torch.zeros(1, width)) if virtual_node else None
        self.virtual_layers = nn.ModuleList(
            NormedMLP(width) for _ in range(layers - 1 if virtual_node else 0)
        )

    def forward(self, batch: GraphBatch) -> Tensor:
        """Features `[G, width]` of `G` graphs; or, under `vmap`, of the padded graphs of one task."""
        graphs = batch.graph_ptr.shape[0] - 1
        node_mask: Tensor | None = None
        graph_mask: Tensor | None = None
        if isinstance(batch, PaddedGraphs):
            node_mask = batch.node_mask
            graph_mask = torch.arange(graphs, device=batch.graph.device) < graphs - 1
        layers = [cast(GINLayer, layer) for layer in self.layers]
        bonds = embed_together([layer.bonds for layer in layers], batch.bond_table)
        fused, width, extra = None, bonds.shape[2], 0
        mlps = [layer.mlp for layer in layers]
        if self.training and can_fuse(mlps, bonds, batch):
            fused = FusedLayers(mlps, self.dropout, batch, bonds, self.virtual is None)
            extra = fused.padding
            nodes = self.atoms.sum_rows(batch.atom_table, batch.atom_codes, bonds.dtype, extra)
        else:
            nodes = look_up_rows(self.atoms(batch.atom_table), batch.atom_codes)
        virtual = None if self.virtual is None else self.virtual.expand(graphs, -1).to(nodes.dtype)
        last = len(layers) - 1
        bonds_of = bonds.unbind(0)
        for number, layer in enumerate(layers):
            if virtual is not None:
                nodes = nodes + look_up_rows(padded(virtual, 0, extra), batch.graph)
                if number < last:
                    pooled = (sum_rows(nodes, batch.graph, graphs)[:, :width] + virtual).to(nodes.dtype)
                    virtual = self._drop(self.virtual_layers[number](pooled, graph_mask).relu())
            if fused is not None:
                nodes = fused(number, nodes, layer.epsilon)
            else:
                nodes = layer(nodes, bonds_of[number], batch, node_mask)
                nodes = self._drop(nodes.relu() if number < last else nodes)
        if fused is not None:
            fused.track()
            return fused.mean(nodes)[:, :width]
        counts = batch.graph_ptr.diff().clamp(min=1).unsqueeze(1)
        features = (sum_rows(nodes, batch.graph, graphs) / counts).to(nodes.dtype)
        return features if graph_mask is None else features[:-1]

    def _drop(self, features: Tensor) -> Tensor:
        return nn.functional.dropout(features, self.dropout, self.training)


class GINLayer(nn.Module):
    """One step of message passing, with the norm that follows it; see `GIN`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.epsilon = nn.Parameter(torch.zeros(1))
        self.bonds = FeatureEmbedding(BOND_DIMS, width)
        self.mlp = NormedMLP(width)

    def forward(self, nodes: Tensor, bonds: Tensor, batch: GraphBatch, mask: Tensor | None) -> Tensor:
        """From features `[N, width]` of nodes, and of the rows of `bond_table`, to the next of nodes."""
        if in_kernels(nodes):
            gathered = pass_messages(nodes, bonds, self.epsilon, batch)
        else:
            gathered = ((1 + self.epsilon) * nodes + aggregate(nodes, bonds, batch)).to(nodes.dtype)
        return self.mlp(gathered, mask)


class NormedMLP(nn.Module):
    """`norm(linear(relu(norm(linear(x)))))`, twice as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(width, 2 * width)
        self.norm1 = MaskedBatchNorm(2 * width)
        self.linear2 = nn.Linear(2 * width, width)
        self.norm2 = MaskedBatchNorm(width)

    def forward(self, rows: Tensor, mask: Tensor | None) -> Tensor:
        """`[n, width]` to the same shape; rows that are masked out do not enter the statistics."""
        hidden = self.norm1(aligned_linear(rows, self.linear1), mask).relu()
        return self.norm2(aligned_linear(hidden, self.linear2), mask)


def aligned_linear(rows: Tensor, linear: nn.Linear) -> Tensor:
    """`linear(rows)`; on a GPU with sizes padded by zeros, since fast matrix products need aligned rows.

    The rows, `[n, in_features]`, may be padded with columns of zeros already.
    """
    bias = linear.bias.to(rows.dtype)  # as autocast does, but not under vmap
    if not in_kernels(rows):
        return nn.functional.linear(rows, linear.weight, bias)
    inner, outer = (-size % ALIGNMENT for size in (linear.in_features, linear.out_features))
    rows = padded(rows, 0, linear.in_features + inner - rows.shape[1])
    weight = padded(linear.weight, outer, inner)
    return nn.functional.linear(rows, weight, padded(bias, 0, outer))[:, : linear.out_features]


def padded(tensor: Tensor, rows: int, columns: int) -> Tensor:
    """The tensor with zeros at the end of its last axes; itself for none, where `pad` would copy it."""
    if not rows and not columns:
        return tensor
    return nn.functional.pad(tensor, (0, columns, 0, rows) if rows else (0, columns))


class FeatureEmbedding(nn.Module):
    """Sum of one embedding of a width per categorical feature; `dims` are the features' numbers of values."""

    offsets: Tensor

    def __init__(self, dims: Sequence[int], width: int) -> None:
        super().__init__()
        sizes = torch.tensor(dims)
        self.register_buffer("offsets", sizes.cumsum(0) - sizes, persistent=False)
        bounds = torch.tensor([math.sqrt(6 / (dim + width)) for dim in dims])  # Xavier, for each feature
        start = torch.empty(sum(dims), width).uniform_(-1, 1)
        self.weight = nn.Parameter(start * bounds.repeat_interleave(sizes).unsqueeze(1))

    def forward(self, features: Tensor) -> Tensor:
        """Embed `int64 [n, len(dims)]` as `[n, width]`."""
        return self.hot(features) @ self.weight

    def sum_rows(self, table: Tensor, codes: Tensor, dtype: torch.dtype, extra: int) -> Tensor:
        """Embed the rows of a table that `codes [n]` name, with extra columns of zeros: `[n, width + extra]`.

        Each is a product by itself. Gradients of rows of the table would be summed by atomic additions, which
        wait for each other, since some rows are far more common than others.
        """
        aligning = -self.weight.shape[0] % ALIGNMENT
        hot = self.hot(table, aligning, dtype)
        return look_up_rows(hot, codes) @ padded(self.weight, aligning, extra).to(dtype)

    def hot(self, features: Tensor, extra: int = 0, dtype: torch.dtype | None = None) -> Tensor:
        """Which rows of the weight are summed for each of the features, as ones and zeros.

        Unlike the backward pass of a lookup, that of a product with it is a plain product, too. There may be
        extra columns of zeros.
        """
        zeros = self.weight.new_zeros(features.shape[0], self.weight.shape[0] + extra, dtype=dtype)
        return zeros.scatter(1, features + self.offsets, 1.0)


def embed_together(parts: Sequence[FeatureEmbedding], features: Tensor) -> Tensor:
    """The same features `[n, len(dims)]` embedded by several of the same size, `[parts, n, width]`."""
    return torch.matmul(parts[0].hot(features), torch.stack([part.weight for part in parts]))
