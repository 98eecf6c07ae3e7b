"""Numbers as positions in ranges: what is appended, to which columns, and how networks carry it."""

import math
from itertools import pairwise

import pytest
import torch
from scipy import stats

from mmb.auc.compositional.per_task_model import is_mlp, stacked_mlp
from mmb.data import Dataset
from mmb.data.inputs.column_kinds import Category, Number
from mmb.data.inputs.columns import ColumnEncoder
from mmb.data.inputs.descriptors import COUNT
from mmb.data.inputs.featurize import Featurizer
from mmb.data.inputs.molecule_cache import MoleculeEncoder
from mmb.models import MultiTask, Ranges, build, mlp


def test_positions_lie_between_quantiles_of_a_normal_distribution():
    inputs = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    found = Ranges(3, 5)(inputs)
    edges = stats.norm.ppf([0.01, 0.206, 0.402, 0.598, 0.794, 0.99])
    assert torch.equal(found[:, :3], inputs)
    for row in (0, 17, 49):
        for column in range(3):
            u = float(inputs[row, column])
            shares = [(u - low) / (high - low) for low, high in pairwise(edges)]
            expected = [min(max(share, 0.0), 1.0) - 0.5 for share in shares]
            own = found[row, 3 + 5 * column : 8 + 5 * column].tolist()
            assert own == pytest.approx(expected, abs=1e-5)


def test_a_linear_layer_after_them_is_a_curve_with_a_piece_per_range():
    layer = Ranges(1, 4)
    edges = [float(layer.low[0]), *(layer.low + layer.width).tolist()]
    heights = torch.tensor([0.0, 1.0, -2.0, 0.5, 3.0])
    weights = torch.cat([torch.zeros(1), heights.diff()])
    values = layer(torch.tensor(edges).unsqueeze(1)) @ weights
    assert torch.allclose(values - values[0], heights, atol=1e-5)


def test_only_the_columns_that_are_numbers_are_divided():
    inputs = torch.randn(4, 5)
    found = Ranges(5, 3, [1, 4])(inputs)
    assert torch.equal(found[:, 5:], Ranges(2, 3)(inputs[:, [1, 4]])[:, 2:])
    assert torch.equal(Ranges(5, 3, [])(inputs), inputs)


@pytest.mark.parametrize(("columns", "ranges"), [(512, 8), (1000, 4), (2048, 2), (2049, 0), (10_000, 0)])
def test_wide_tables_have_fewer_ranges(columns, ranges):
    layer = Ranges(columns, 8)
    assert layer.num_outputs == columns * (1 + ranges)
    assert layer(torch.zeros(2, columns)).shape == (2, layer.num_outputs)


@pytest.mark.parametrize("columns", [[-1], [0, 3]])
def test_a_column_that_is_not_there_is_refused(columns):
    with pytest.raises(ValueError, match=r"columns: .*0 to 2"):
        Ranges(3, 4, columns)
    with pytest.raises(ValueError, match="columns"):
        mlp(3, [4], 1, ranges=4, columns=columns)


def test_a_negative_number_of_ranges_is_refused():
    with pytest.raises(ValueError, match=r"ranges: .*-1"):
        mlp(3, [4], 1, ranges=-1)


def test_edges_are_not_among_the_weights():
    assert not Ranges(3, 4).state_dict()
    assert list(mlp(3, [], 2, ranges=4).state_dict()) == ["weight", "bias"]
    assert mlp(3, [], 2, ranges=4).weight.shape == (2, 15)


def test_networks_divide_the_columns_of_a_table_that_hold_numbers():
    encoder = ColumnEncoder((Category("kind", ("a", "b")), Number("age"), Number("size")))
    assert encoder.numeric_places == [2, 3]
    split = {part: torch.arange(6) for part in ("train", "valid", "test")}
    labels = torch.zeros(6, 2, dtype=torch.int8)
    data = Dataset("things", torch.randn(6, 4), labels, split, ("one", "two"), encoder)
    network = build("mlp", data, hidden=[8], ranges=3)
    assert isinstance(network, MultiTask)
    first, linear, _ = network.encoder
    assert first.columns.tolist() == [2, 3]
    assert linear.in_features == 4 + 2 * 3
    assert type(build("mlp", data, hidden=[8]).encoder[0]) is torch.nn.Linear


def test_of_molecules_they_divide_the_descriptors():
    encoder = MoleculeEncoder("smiles", Featurizer("descriptors", bits=16))
    assert encoder.numeric_places == list(range(16, 16 + COUNT))
    assert MoleculeEncoder("smiles", Featurizer("fingerprint", bits=16)).numeric_places == []
    split = {part: torch.arange(2) for part in ("train", "valid", "test")}
    inputs, labels = torch.randn(2, 16 + COUNT), torch.zeros(2, 1, dtype=torch.int8)
    data = Dataset("molecules", inputs, labels, split, ("active",), encoder)
    assert build("mlp", data, hidden=[4], ranges=3).encoder[1].in_features == 16 + 4 * COUNT


def test_every_task_may_have_its_own_weights_behind_them():
    model = mlp(3, [7], 4, ranges=5)
    assert is_mlp(model.encoder)
    inputs = torch.randn(4, 6, 3)
    weights = {name: value.expand(4, *value.shape) for name, value in model.encoder.named_parameters()}
    assert torch.allclose(stacked_mlp(model.encoder, weights, inputs), model.encoder(inputs), atol=1e-6)


def test_a_step_that_a_plain_network_cannot_learn_is_learned():
    """Positives lie in a narrow band of one column."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2000, 4, generator=generator)
    labels = ((inputs[:, 0] > 0.3) & (inputs[:, 0] < 0.6)).float().unsqueeze(1)

    def loss(ranges):
        torch.manual_seed(1)
        model = mlp(4, [], 1, ranges=ranges)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(150):
            optimizer.zero_grad()
            found = torch.nn.functional.binary_cross_entropy_with_logits(model(inputs), labels)
            found.backward()
            optimizer.step()
        return float(found.detach())

    share = float(labels.mean())
    chance = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert loss(0) > 0.95 * chance
    assert loss(8) < 0.6 * chance
