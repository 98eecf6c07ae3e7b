"""GPU kernels that cut graphs out of `GraphInputs`, as its `fixed` says; they need Triton."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["graphs", "nodes"])
def starts_kernel(rows, atom_ptr, edge_ptr, starts, edge_starts, graphs, nodes, size: tl.constexpr):
    """Where the nodes and the edges of each graph start; a single program."""
    step = tl.arange(0, size)
    node = tl.full((), 0, tl.int64)
    edge = tl.full((), 0, tl.int64)
    for begin in range(0, graphs, size):
        place = begin + step
        on = place < graphs
        row = tl.load(rows + place, mask=on, other=0)
        count = tl.load(atom_ptr + row + 1, mask=on, other=0) - tl.load(atom_ptr + row, mask=on, other=0)
        edges = tl.load(edge_ptr + row + 1, mask=on, other=0) - tl.load(edge_ptr + row, mask=on, other=0)
        tl.store(starts + place, node + tl.cumsum(count, 0) - count, mask=on)
        tl.store(edge_starts + place, edge + tl.cumsum(edges, 0) - edges, mask=on)
        node += tl.sum(count, 0)
        edge += tl.sum(edges, 0)
    tl.store(starts + graphs, node)
    tl.store(starts + graphs + 1, nodes)
    tl.store(edge_starts + graphs, edge)


@triton.jit(do_not_specialize=["graphs", "nodes", "edges"])
def cut_kernel(
    rows, atom_ptr, edge_ptr, atom_codes, degrees, neighbors, bond_codes, starts, edge_starts,
    out_atoms, out_graph, out_real, out_ptr, out_ends, out_bonds, graphs, nodes, edges, size: tl.constexpr,
):  # fmt: skip
    """Each program copies a graph; the last ones write padding."""
    graph = tl.program_id(0)
    step = tl.arange(0, size)
    if graph < graphs:
        row = tl.load(rows + graph)
        from_node = tl.load(atom_ptr + row)
        from_edge = tl.load(edge_ptr + row)
        first_node = tl.load(starts + graph).to(tl.int32)
        first_edge = tl.load(edge_starts + graph).to(tl.int32)
        node_count = tl.load(starts + graph + 1).to(tl.int32) - first_node
        edge_count = tl.load(edge_starts + graph + 1).to(tl.int32) - first_edge
        edge_of_node = first_edge
        for begin in range(0, node_count, size):
            place = begin + step
            on = place < node_count
            node = first_node + place
            fits = on & (node < nodes)
            degree = tl.load(degrees + from_node + place, mask=on, other=0).to(tl.int32)
            atom = tl.load(atom_codes + from_node + place, mask=on, other=0)
            edge = edge_of_node + tl.cumsum(degree, 0) - degree
            tl.store(out_atoms + node, atom.to(tl.int64), mask=fits)
            tl.store(out_graph + node, tl.zeros((size,), tl.int64) + graph, mask=fits)
            tl.store(out_real + node, tl.full((size,), 1, tl.uint8), mask=fits)
            tl.store(out_ptr + node, edge.to(tl.int64), mask=fits)
            for number in range(tl.max(degree, 0)):
                target = edge + number
                inside = (number < degree) & (target < edges)
                tl.store(out_ends + edges + target, node.to(tl.int64), mask=inside)
            edge_of_node += tl.sum(degree, 0)
        for begin in range(0, edge_count, size):
            place = begin + step
            edge = first_edge + place
            on = place < edge_count
            fits = on & (edge < edges)
            neighbor = tl.load(neighbors + from_edge + place, mask=on, other=0).to(tl.int64)
            bond = tl.load(bond_codes + from_edge + place, mask=on, other=0)
            tl.store(out_ends + edge, neighbor + first_node, mask=fits)
            tl.store(out_bonds + edge, bond.to(tl.int64), mask=fits)
    else:
        stride = (tl.num_programs(0) - graphs) * size
        last_edge = tl.load(edge_starts + graphs)
        first = tl.load(starts + graphs).to(tl.int32) + (graph - graphs) * size
        for begin in range(first, nodes + 1, stride):
            node = begin + step
            fits = node < nodes
            tl.store(out_atoms + node, tl.zeros((size,), tl.int64), mask=fits)
            tl.store(out_graph + node, tl.zeros((size,), tl.int64) + graphs, mask=fits)
            tl.store(out_real + node, tl.zeros((size,), tl.uint8), mask=fits)
            tl.store(out_ptr + node, tl.zeros((size,), tl.int64) + last_edge, mask=node <= nodes)
        for begin in range(last_edge.to(tl.int32) + (graph - graphs) * size, edges, stride):
            edge = begin + step
            fits = edge < edges
            end = tl.zeros((size,), tl.int64) + (nodes - 1)
            tl.store(out_ends + edge, end, mask=fits)
            tl.store(out_ends + edges + edge, end, mask=fits)
            tl.store(out_bonds + edge, tl.zeros((size,), tl.int64), mask=fits)
