"""Graphs cut out by GPU kernels: on a GPU, or anywhere with TRITON_INTERPRET=1."""

from __future__ import annotations

import os

import pytest
import torch

from mmb.data.inputs.graphs import graph_kernels
from random_graphs import random_graphs

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
runs = pytest.mark.skipif(
    graph_kernels() is None or not (DEVICE == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"),
    reason="needs Triton, and a GPU or its interpreter",
)


@runs
@pytest.mark.parametrize("largest", [9, 130])
@pytest.mark.parametrize("room", [(1, 0), (90, 70), (2000, 3000)])
def test_the_same_batch_as_by_operations(largest, room):
    store = random_graphs(30, torch.Generator().manual_seed(0), largest=largest)
    rows = torch.tensor([3, 3, 7, 29, 0, 11])
    sizes = [size + more for size, more in zip(store.sizes(rows), room, strict=True)]
    expected = store.fixed(rows, *sizes)
    found = store.to(DEVICE)._in_kernels(graph_kernels(), rows.to(DEVICE), *sizes).to("cpu")
    for one, other in zip(found.tensors(), expected.tensors(), strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


@runs
def test_graphs_that_do_not_fit_are_cut_off():
    store = random_graphs(30, torch.Generator().manual_seed(0)).to(DEVICE)
    batch = store._in_kernels(graph_kernels(), torch.arange(30, device=DEVICE), 20, 10)
    assert [len(batch.atom_codes), len(batch.bond_codes), batch.edges.shape[1]] == [20, 10, 10]
    assert batch.node_mask.all()
