"""Stacking the graphs of tasks: every task's graphs come out as they went in, with padding at the end."""

from __future__ import annotations

import pytest
import torch

from mmb.models.task_graphs import stack_tasks
from random_graphs import random_graphs


@pytest.mark.parametrize(("nodes", "edges"), [(None, None), (50, 120), (None, 120)])
def test_tasks_come_out_as_they_went_in(nodes, edges):
    store = random_graphs(12, torch.Generator().manual_seed(0))
    rows = torch.tensor([[3, 1, 4], [1, 5, 9], [2, 6, 5], [8, 10, 7]])
    stacked = stack_tasks(store[rows.flatten()], tasks=4, nodes=nodes, edges=edges)
    for task in range(4):
        got = type(stacked)(*(tensor[task] for tensor in stacked.tensors()))
        want = store[rows[task]]
        n, e = len(want.atom_codes), want.edges.shape[1]
        assert len(got) == len(want) == 3
        assert torch.equal(got.node_mask, torch.arange(len(got.node_mask)) < n)
        assert not got.node_mask[-1]
        assert torch.equal(got.atom_codes[:n], want.atom_codes)
        assert torch.equal(got.graph[:n], want.graph)
        assert torch.equal(got.edges[:, :e], want.edges)
        assert torch.equal(got.bond_codes[:e], want.bond_codes)
        assert torch.equal(got.atom_table, want.atom_table)
        assert torch.equal(got.bond_table, want.bond_table)
        # Padding is one more graph, the last, whose edges are loops on the last node.
        assert (got.graph[n:] == 3).all()
        assert (got.edges[:, e:] == len(got.node_mask) - 1).all()
        # Pointers state the same as indices do.
        assert torch.equal(got.graph_ptr.diff(), torch.bincount(got.graph, minlength=4))
        assert torch.equal(
            got.edge_ptr, torch.nn.functional.pad(want.edge_ptr, (0, len(got.node_mask) - n), value=e)
        )
    shape = stacked.node_mask.shape
    sizes = (store[rows.flatten()].graph_ptr[::3]).diff()
    assert shape == (4, nodes or int(sizes.max()) + 1)


def test_uneven_division_is_refused():
    batch = random_graphs(5, torch.Generator().manual_seed(0))[torch.arange(5)]
    with pytest.raises(ValueError, match=r"tasks.*5.*2"):
        stack_tasks(batch, tasks=2)
