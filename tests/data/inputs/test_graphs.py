import torch

from mmb.data.inputs.graphs import BOND_DIMS, GraphInputs, mixed_radix_table


def store():
    """Three graphs: a path of three nodes, a lone node, two joined nodes."""
    return GraphInputs.from_arrays(
        {
            "atom_codes": torch.tensor([0, 1, 0, 2, 1, 1], dtype=torch.int16),
            "atom_table": torch.arange(27, dtype=torch.uint8).view(3, 9),
            "degrees": torch.tensor([1, 2, 1, 0, 1, 1], dtype=torch.uint8),
            "neighbours": torch.tensor([1, 0, 2, 1, 1, 0], dtype=torch.uint8),
            "bond_codes": torch.tensor([0, 0, 1, 1, 59, 59], dtype=torch.uint8),
            "atom_counts": torch.tensor([3, 1, 2], dtype=torch.int32),
            "edge_counts": torch.tensor([4, 0, 2], dtype=torch.int32),
        }
    )


def test_a_batch_is_what_concatenation_would_give():
    batch = store()[torch.tensor([2, 1, 0, 2])]
    assert len(batch) == 4
    assert batch.graph_ptr.tolist() == [0, 2, 3, 6, 8]
    assert batch.graph.tolist() == [0, 0, 1, 2, 2, 2, 3, 3]
    assert batch.atom_codes.tolist() == [1, 1, 2, 0, 1, 0, 1, 1]
    assert batch.edges.tolist() == [[1, 0, 4, 3, 5, 4, 7, 6], [0, 1, 3, 4, 4, 5, 6, 7]]
    assert batch.bond_codes.tolist() == [59, 59, 0, 0, 1, 1, 59, 59]
    assert batch.edge_ptr.tolist() == [0, 1, 2, 2, 3, 5, 6, 7, 8]
    assert batch.atoms.shape == (8, 9)
    assert batch.bonds[0].tolist() == [4, 5, 1]


def test_segments_and_indices_reduce_alike():
    batch = store()[torch.tensor([0, 2, 1])]
    values = torch.randn(batch.edges.shape[1], 4, generator=torch.Generator().manual_seed(0))
    by_index = torch.zeros(len(batch.graph), 4).index_add(0, batch.edges[1], values)
    by_segment = torch.segment_reduce(values, "sum", offsets=batch.edge_ptr, axis=0, initial=0)
    assert torch.allclose(by_segment, by_index, atol=1e-6)
    assert (batch.edges[1].diff() >= 0).all()
    assert (batch.graph.diff() >= 0).all()


def test_no_rows_is_an_empty_batch():
    batch = store()[torch.tensor([], dtype=torch.int64)]
    assert len(batch) == 0
    assert batch.edges.shape == (2, 0)


def test_moving_keeps_sizes_on_the_host():
    inputs = store().to("meta")
    assert inputs.atom_codes.device.type == "meta"
    assert inputs.host_ptr.device.type == "cpu"
    # On a device that holds no values, a batch still gets its right sizes: nothing waited for the device.
    batch = inputs[torch.tensor([0, 2])]
    assert batch.edges.shape == (2, 6)
    assert batch.atom_codes.shape == (5,)
    assert batch.to("meta").graph.device.type == "meta"


def test_the_bond_table_counts_in_mixed_radix():
    table = mixed_radix_table(BOND_DIMS)
    assert table.shape == (60, 3)
    weights = torch.tensor([12, 2, 1])
    assert torch.equal((table * weights).sum(1), torch.arange(60))
