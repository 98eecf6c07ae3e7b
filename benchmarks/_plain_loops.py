"""Training loops written by hand, without this library: what its steps are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn

from mmb.data import Dataset
from mmb.data.inputs.graphs import ATOM_DIMS, BOND_DIMS


def labels_with_nan(labels: Tensor) -> Tensor:
    """Labels 0 and 1 as numbers, with NaN for those that are missing."""
    return torch.where(labels < 0, torch.nan, labels.float())


def labeled_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy over the labels that are there (not NaN), as the Open Graph Benchmark's examples do."""
    there = ~labels.isnan()
    return nn.functional.binary_cross_entropy_with_logits(scores[there], labels[there])


def masked_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """The same without waiting for the device."""
    there = ~labels.isnan()
    weight = there.float() / there.sum()
    return nn.functional.binary_cross_entropy_with_logits(
        scores, labels.nan_to_num(), weight, reduction="sum"
    )


class SummedEmbeddings(nn.Module):
    """One embedding for each feature, summed: the encoders of the Open Graph Benchmark."""

    def __init__(self, dims: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Embedding(dim, width) for dim in dims)

    def forward(self, features: Tensor) -> Tensor:
        total: Any = 0
        for number, part in enumerate(self.parts):
            total = total + part(features[:, number])
        return total


def pyg_gin(num_tasks: int, layers: int, width: int, dropout: float) -> nn.Module:
    """The network of `mmb.models.gin` in PyG."""
    from torch_geometric.nn import GINEConv, global_mean_pool

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.atoms = SummedEmbeddings(ATOM_DIMS, width)
            self.bonds = nn.ModuleList(SummedEmbeddings(BOND_DIMS, width) for _ in range(layers))
            self.convs = nn.ModuleList(
                GINEConv(
                    nn.Sequential(
                        nn.Linear(width, 2 * width),
                        nn.BatchNorm1d(2 * width),
                        nn.ReLU(),
                        nn.Linear(2 * width, width),
                    ),
                    train_eps=True,
                )
                for _ in range(layers)
            )
            self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
            self.head = nn.Linear(width, num_tasks)

        def forward(self, data: Any) -> Tensor:
            nodes = self.atoms(data.x)
            parts = zip(self.convs, self.bonds, self.norms, strict=True)
            for number, (conv, bonds, norm) in enumerate(parts):
                nodes = norm(conv(nodes, data.edge_index, bonds(data.edge_attr)))
                nodes = nodes.relu() if number < layers - 1 else nodes
                nodes = nn.functional.dropout(nodes, dropout, self.training)
            return self.head(global_mean_pool(nodes, data.batch, data.num_graphs))

    return Network()


def pyg_graphs(dataset: Dataset, rows: Tensor) -> list[Any]:
    """Rows of a data set of molecules as PyG has them, on the host."""
    from torch_geometric.data import Data

    dataset = dataset.to("cpu")
    labels, found = labels_with_nan(dataset.labels), []
    for row in rows.split(1):
        graph = dataset.inputs[row]
        found.append(Data(graph.atoms, graph.edges, graph.bonds, labels[row]))
    return found


def pyg_batches(graphs: list[Any], batch_size: int, device: torch.device, built: bool) -> Iterator[Any]:
    """Endless batches: collated by PyG's loader, or once and for all."""
    from torch_geometric.loader import DataLoader

    loader = DataLoader(graphs, batch_size, shuffle=True, drop_last=True, pin_memory=device.type == "cuda")
    if built:
        yield from cycle([batch.to(device) for batch in loader])
    while True:
        for batch in loader:
            yield batch.to(device, non_blocking=True)


def plain_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[tuple[Any, Tensor]],
    device: torch.device,
    masked: bool = False,
) -> Callable[[], None]:
    """A step of the loop that everybody writes, in bfloat16."""
    loss_of = masked_loss if masked else labeled_loss

    def step() -> None:
        inputs, labels = next(batches)
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            loss = loss_of(model(inputs), labels)
        loss.backward()
        optimizer.step()

    return step
