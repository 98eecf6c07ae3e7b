"""Random molecule-like graphs in the layout of `mmb.data.inputs.graphs`."""

from __future__ import annotations

import torch

from mmb.data import Dataset
from mmb.data.inputs.graphs import ATOM_DIMS, BOND_DIMS, GraphInputs, mixed_radix_table

DISTINCT_ATOMS = 17


def random_graphs(count: int, generator: torch.Generator, smallest: int = 1, largest: int = 9) -> GraphInputs:
    """Random trees with one more bond where there is room, every bond in both directions."""
    sizes = torch.randint(smallest, largest + 1, (count,), generator=generator).tolist()
    neighbours, bonds, degrees, edge_counts = [], [], [], []
    for size in sizes:
        pairs = {(int(torch.randint(node, (), generator=generator)), node) for node in range(1, size)}
        if size > 2:
            pairs.add((0, size - 1))
        codes = torch.randint(len(mixed_radix_table(BOND_DIMS)), (len(pairs),), generator=generator).tolist()
        edges = sorted(
            (target, source, code)
            for pair, code in zip(sorted(pairs), codes, strict=True)
            for source, target in (pair, pair[::-1])
        )
        neighbours += [source for _, source, _ in edges]
        bonds += [code for _, _, code in edges]
        degrees += [sum(target == node for target, _, _ in edges) for node in range(size)]
        edge_counts.append(len(edges))
    table = torch.stack(
        [torch.randint(dim, (DISTINCT_ATOMS,), generator=generator) for dim in ATOM_DIMS], dim=1
    )
    return GraphInputs.from_arrays(
        {
            "atom_codes": torch.randint(DISTINCT_ATOMS, (sum(sizes),), generator=generator).short(),
            "atom_table": table,
            "degrees": torch.tensor(degrees, dtype=torch.uint8),
            "neighbours": torch.tensor(neighbours, dtype=torch.uint8),
            "bond_codes": torch.tensor(bonds, dtype=torch.uint8),
            "atom_counts": torch.tensor(sizes),
            "edge_counts": torch.tensor(edge_counts),
        }
    )


def random_molecules(rows=300):
    """A data set of random graphs with three tasks."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(-1, 2, (rows, 3), generator=generator).to(torch.int8)
    order = torch.arange(rows)
    split = {"train": order[:250], "valid": order[250:280], "test": order[280:]}
    return Dataset("graphs", random_graphs(rows, generator), labels, split, ("a", "b", "c"))
