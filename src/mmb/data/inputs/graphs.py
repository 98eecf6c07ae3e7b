"""Molecules as graphs on a device: a compact store of them all, ragged batches cut out by tensor ops."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Self

import torch
from torch import Tensor

PADDERS = 16  # programs that write padding

# Number of values of each feature, as the Open Graph Benchmark defines them (ogb.utils.features).
ATOM_DIMS = (119, 5, 12, 12, 10, 6, 6, 2, 2)
BOND_DIMS = (5, 6, 2)


@dataclass(frozen=True)
class GraphBatch:
    """Several graphs as one: N nodes, E directed edges (each bond twice), G graphs.

    Edges are sorted by target, and nodes by graph, so that both can be reduced as segments
    (`torch.segment_reduce` with `edge_ptr` and `graph_ptr`) as well as by index.

    Features are coded: a molecule set has few distinct atoms, so a model can embed the rows of `atom_table`
    once and look nodes up by `atom_codes`, which is equal to embedding `atoms`, and cheaper.

    Attributes:
        atom_codes: `int64 [N]`, rows of `atom_table`.
        atom_table: `int64 [A, 9]`, the distinct atom feature vectors.
        edges: `int64 [2, E]`, source and target node of each edge.
        bond_codes: `int64 [E]`, rows of `bond_table`.
        bond_table: `int64 [60, 3]`, all bond feature vectors.
        graph: `int64 [N]`, the graph of each node.
        graph_ptr: `int64 [G + 1]`; nodes of graph g are `graph_ptr[g]` to `graph_ptr[g + 1]`.
        edge_ptr: `int64 [N + 1]`; edges into node v are `edge_ptr[v]` to `edge_ptr[v + 1]`.
    """

    atom_codes: Tensor
    atom_table: Tensor
    edges: Tensor
    bond_codes: Tensor
    bond_table: Tensor
    graph: Tensor
    graph_ptr: Tensor
    edge_ptr: Tensor

    def __len__(self) -> int:
        return len(self.graph_ptr) - 1

    @property
    def atoms(self) -> Tensor:
        """Atom features, `int64 [N, 9]`, numbered as in `ATOM_DIMS`."""
        return self.atom_table[self.atom_codes]

    @property
    def bonds(self) -> Tensor:
        """Bond features, `int64 [E, 3]`, numbered as in `BOND_DIMS`."""
        return self.bond_table[self.bond_codes]

    def tensors(self) -> Iterator[Tensor]:
        """All tensors of the batch."""
        return (getattr(self, field.name) for field in fields(self))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """The same batch on `device`."""
        return type(self)(*(tensor.to(device, non_blocking=non_blocking) for tensor in self.tensors()))


@dataclass(frozen=True)
class PaddedGraphs(GraphBatch):
    """`GraphBatch` with nodes and edges of padding at its end; the nodes form one more graph, the last."""

    # At least the last node is padding, and edges of padding are loops on it, which `edge_ptr` leaves out.
    node_mask: Tensor  # `bool [N]`, true for real nodes

    def __len__(self) -> int:
        return self.graph_ptr.shape[-1] - 2


@dataclass(frozen=True)
class FixedGraphs(PaddedGraphs):
    """`PaddedGraphs` cut out by `GraphInputs.fixed`: of all tasks together, not stacked."""


@dataclass(frozen=True)
class GraphInputs:
    """All graphs of a data set, a few bytes per atom; `inputs[rows]` is a `GraphBatch`."""

    atom_codes: Tensor  # `int16 [atoms]`, rows of `atom_table`
    atom_table: Tensor  # `int64 [A, 9]`
    degrees: Tensor  # `uint8 [atoms]`, number of edges into each atom
    # source of each edge (sorted by target) in its molecule: `uint8`, or `int16` if one has over 256 atoms
    neighbors: Tensor
    bond_codes: Tensor  # `uint8 [edges]`, the number of the bond's features in the mixed radix `BOND_DIMS`
    bond_table: Tensor  # `int64 [60, 3]`
    atom_ptr: Tensor  # `int64 [n + 1]`; atoms of row r are `atom_ptr[r]` to `atom_ptr[r + 1]`
    edge_ptr: Tensor  # `int64 [n + 1]`, likewise for edges
    host_ptr: Tensor  # `int64 [2, n + 1]`, both on the host: sizes of a batch without waiting for the device
    room: tuple[int, int] | None = None  # nodes and edges that batches are padded to, where they fit

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor]) -> Self:
        """From the arrays that `mmb.data.inputs.featurize` makes; caches keep the spelling `neighbours`."""
        atom_ptr, edge_ptr = (_starts(arrays[key].long()) for key in ("atom_counts", "edge_counts"))
        return cls(
            atom_codes=arrays["atom_codes"],
            atom_table=arrays["atom_table"].long(),
            degrees=arrays["degrees"],
            neighbors=arrays["neighbours"],
            bond_codes=arrays["bond_codes"],
            bond_table=mixed_radix_table(BOND_DIMS),
            atom_ptr=atom_ptr,
            edge_ptr=edge_ptr,
            host_ptr=torch.stack([atom_ptr, edge_ptr]),
        )

    def __len__(self) -> int:
        return self.host_ptr.shape[1] - 1

    def to(self, device: torch.device | str) -> Self:
        """The same graphs on `device`; sizes stay on the host too."""
        stay = ("host_ptr", "room")
        moved = {f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name not in stay}
        return replace(self, **moved)

    def __getitem__(self, rows: Tensor) -> GraphBatch:
        """The graphs of some rows, in their order; with rows on the host, nothing waits for the device."""
        nodes, edges = self.sizes(rows.cpu())
        rows = rows.to(self.atom_ptr.device, non_blocking=True)
        if self.room is not None and nodes < self.room[0] and edges <= self.room[1]:
            return self.fixed(rows, *self.room)
        graph, node, graph_ptr = _ragged(self.atom_ptr, rows, nodes)
        graph_of_edge, edge, _ = _ragged(self.edge_ptr, rows, edges)
        degree = self.degrees[node].long()
        source = self.neighbors[edge].long() + graph_ptr[graph_of_edge]
        target = torch.repeat_interleave(degree, output_size=edges)
        return GraphBatch(
            atom_codes=self.atom_codes[node].long(),
            atom_table=self.atom_table,
            edges=torch.stack([source, target]),
            bond_codes=self.bond_codes[edge].long(),
            bond_table=self.bond_table,
            graph=graph,
            graph_ptr=graph_ptr,
            edge_ptr=_starts(degree),
        )

    def sizes(self, rows: Tensor) -> tuple[int, int]:
        """Number of nodes and of directed edges of some rows (on the host) together."""
        return self.largest(rows.unsqueeze(0))

    def largest(self, rows: Tensor) -> tuple[int, int]:
        """Most nodes and most edges that any run of rows has, of runs `[k, r]` on the host."""
        sizes = self.host_ptr[:, rows + 1] - self.host_ptr[:, rows]
        nodes, edges = sizes.sum(2).amax(1).tolist()
        return nodes, edges

    def fixed(self, rows: Tensor, nodes: int, edges: int) -> FixedGraphs:
        """Cut out the graphs of some rows, padded to a given size: every shape is known beforehand.

        Nothing waits for the device, whatever the rows, so it can be captured in a CUDA graph. The graphs are
        in the order of `rows` (on the device of the graphs), with one more of padding: there must be more
        `nodes`, and at least as many `edges`, as the rows have (see `sizes`), or graphs are cut off.
        """
        if rows.is_cuda and (kernels := graph_kernels()) is not None:
            return self._in_kernels(kernels, rows, nodes, edges)
        graph, node, graph_ptr, real = _fixed(self.atom_ptr, rows, nodes)
        degree = torch.where(real, self.degrees[node].long(), 0)
        edge_ptr = _starts(degree)
        graph_of_edge, edge, _, real_edge = _fixed(self.edge_ptr, rows, edges)
        place = torch.arange(edges, device=rows.device)
        source = self.neighbors[edge].long() + graph_ptr[graph_of_edge]
        target = torch.searchsorted(edge_ptr[1:], place, right=True)
        ends = torch.where(real_edge, torch.stack([source, target]), nodes - 1)
        return FixedGraphs(
            atom_codes=torch.where(real, self.atom_codes[node].long(), 0),
            atom_table=self.atom_table,
            edges=ends,
            bond_codes=torch.where(real_edge, self.bond_codes[edge].long(), 0),
            bond_table=self.bond_table,
            graph=graph,
            graph_ptr=torch.nn.functional.pad(graph_ptr, (0, 1), value=nodes),
            edge_ptr=edge_ptr,
            node_mask=real,
        )

    def _in_kernels(self, kernels: Any, rows: Tensor, nodes: int, edges: int) -> FixedGraphs:
        """`fixed` in two GPU kernels instead of fifty."""
        graphs = len(rows)
        starts, edge_starts, atoms, graph, edge_ptr, bonds = (
            rows.new_empty(size) for size in (graphs + 2, graphs + 1, nodes, nodes, nodes + 1, edges)
        )
        ends, real = rows.new_empty(2, edges), rows.new_empty(nodes, dtype=torch.uint8)
        index = (rows.contiguous(), self.atom_ptr, self.edge_ptr)
        with torch.cuda.device_of(rows):  # type: ignore[no-untyped-call]  # where Triton launches
            kernels.starts_kernel[(1,)](*index, starts, edge_starts, graphs, nodes, 1024)
            kernels.cut_kernel[(graphs + PADDERS,)](
                *index, self.atom_codes, self.degrees, self.neighbors, self.bond_codes, starts, edge_starts,
                atoms, graph, real, edge_ptr, ends, bonds, graphs, nodes, edges, 64, num_warps=2,
            )  # fmt: skip
        return FixedGraphs(
            atom_codes=atoms,
            atom_table=self.atom_table,
            edges=ends,
            bond_codes=bonds,
            bond_table=self.bond_table,
            graph=graph,
            graph_ptr=starts,
            edge_ptr=edge_ptr,
            node_mask=real.view(torch.bool),
        )


@cache
def graph_kernels() -> Any:
    """The GPU kernels that cut graphs out; None without Triton, which takes a moment to import."""
    try:
        from mmb.data.inputs import _graph_kernels
    except ImportError:
        return None
    return _graph_kernels


def _fixed(ptr: Tensor, rows: Tensor, total: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `_ragged`, padded to `total` elements, of row `len(rows)`; last, which elements are real."""
    start = ptr[rows]
    new_ptr = _starts(ptr[rows + 1] - start)
    index = torch.arange(total, device=ptr.device)
    owner = torch.searchsorted(new_ptr[1:], index, right=True)
    real = index < new_ptr[-1]
    shift = torch.nn.functional.pad(start - new_ptr[:-1], (0, 1))
    return owner, torch.where(real, index + shift[owner], 0), new_ptr, real


def _ragged(ptr: Tensor, rows: Tensor, total: int) -> tuple[Tensor, Tensor, Tensor]:
    """For the elements of some rows: position of the row in `rows`, place in the store, new pointers."""
    start = ptr[rows]
    counts = ptr[rows + 1] - start
    new_ptr = _starts(counts)
    owner = torch.repeat_interleave(counts, output_size=total)
    place = torch.arange(total, device=ptr.device) + (start - new_ptr[:-1])[owner]
    return owner, place, new_ptr


def _starts(counts: Tensor) -> Tensor:
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0))


def mixed_radix_table(dims: tuple[int, ...]) -> Tensor:
    """All feature vectors `int64 [prod(dims), len(dims)]`; the last feature changes fastest."""
    return torch.cartesian_prod(*(torch.arange(dim) for dim in dims))
