"""Graphs of several tasks side by side, so that each task can be evaluated at its own weights in one go.

Ragged batches of `k` tasks are padded to one size and stacked: every tensor gets a leading axis `[k]`,
and all indices count within the task. `torch.func.vmap` over weights and graphs then turns the layers of
all tasks into batched matrix products::

    graphs = stack_tasks(batch, tasks=k)
    with untracked_batch_norm(model):
        features = torch.func.vmap(lambda w, g: torch.func.functional_call(model, w, (g,)))(weights, graphs)

Nodes of padding are masked out of batch norm and of the result. The sizes of some hundred molecules together
differ little, so padding costs a few percent.
"""

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from mmb.data.inputs.graphs import GraphBatch, PaddedGraphs


def stack_tasks(
    batch: GraphBatch, tasks: int, nodes: int | None = None, edges: int | None = None
) -> PaddedGraphs:
    """Cut a batch of `k * r` graphs into `k` equal runs, one per task, and stack them padded: `[k, ...]`.

    The sizes after padding are by default those of the largest task, with one more node. If both are given,
    nothing waits for the device, and shapes can stay the same from step to step.
    """
    if tasks < 1 or len(batch) % tasks:
        raise ValueError(f"tasks must divide the number of graphs, {len(batch)}, evenly; got {tasks}")
    graphs = len(batch) // tasks
    first_node = batch.graph_ptr[::graphs]  # [k + 1]
    first_edge = batch.edge_ptr[first_node]
    if nodes is None or edges is None:
        largest = torch.stack([first_node.diff().max() + 1, first_edge.diff().max()]).tolist()
        nodes = largest[0] if nodes is None else nodes
        edges = largest[1] if edges is None else edges
    node, node_mask = _runs(first_node, nodes)
    edge, edge_mask = _runs(first_edge, edges)
    start = first_node[:-1].unsqueeze(1)
    ends = [torch.where(edge_mask, end[edge] - start, nodes - 1) for end in batch.edges]
    first_graph = graphs * torch.arange(tasks, device=start.device).unsqueeze(1)
    graph_ptr = batch.graph_ptr.unfold(0, graphs + 1, graphs) - start  # [k, r + 1]
    edge_ptr = batch.edge_ptr[
        torch.minimum(start + torch.arange(nodes + 1, device=start.device), first_node[1:, None])
    ]
    return PaddedGraphs(
        atom_codes=torch.where(node_mask, batch.atom_codes[node], 0),
        atom_table=batch.atom_table.expand(tasks, -1, -1),
        edges=torch.stack(ends, 1),
        bond_codes=torch.where(edge_mask, batch.bond_codes[edge], 0),
        bond_table=batch.bond_table.expand(tasks, -1, -1),
        graph=torch.where(node_mask, batch.graph[node] - first_graph, graphs),
        graph_ptr=torch.nn.functional.pad(graph_ptr, (0, 1), value=nodes),
        edge_ptr=edge_ptr - first_edge[:-1, None],
        node_mask=node_mask,
    )


def _runs(first: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Places `[k, length]` of the runs that start at `first[:-1]`, and which are inside their run."""
    place = first[:-1, None] + torch.arange(length, device=first.device)
    inside = place < first[1:, None]
    return torch.where(inside, place, 0), inside


pytree.register_dataclass(PaddedGraphs)
