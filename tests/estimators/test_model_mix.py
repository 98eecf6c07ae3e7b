"""Models side by side, and the columns as they see them."""

import pytest
import torch

from mmb.estimators.model_mix import ByteDropout, ModelMix, Periodic, PiecewiseLinear


def test_encoding_is_how_far_a_value_lies_through_each_range():
    values = torch.arange(17.0)  # quantiles at 0, 2, 4, ..., 16
    encoding = PiecewiseLinear(values.unsqueeze(1))
    ranges = ((values.unsqueeze(1) - torch.arange(0.0, 16, 2)) / 2).clamp(0, 1)
    expected = (ranges - ranges.mean(0)) / ranges.std(0, correction=0)
    torch.testing.assert_close(encoding(values.unsqueeze(1)), torch.cat([values.unsqueeze(1), expected], 1))


def test_columns_with_one_or_two_values_are_not_encoded():
    generator = torch.Generator().manual_seed(0)
    columns = [torch.randn(500, generator=generator), torch.zeros(500), (torch.arange(500) % 5 == 0).float()]
    encoding = PiecewiseLinear(torch.stack(columns, 1))
    assert encoding.columns.unique().tolist() == [0]
    assert encoding(torch.stack(columns, 1)).shape == (500, encoding.num_outputs) == (500, 3 + 8)
    assert len(PiecewiseLinear(torch.randn(20, 3000, generator=generator)).columns) == 0  # too many to encode


def test_waves_are_cosines_of_their_column():
    torch.manual_seed(0)
    periodic = Periodic(3, torch.tensor([0, 2]))
    x = torch.randn(5, 3)
    found = periodic(x)
    assert found.shape == (5, periodic.num_outputs) == (5, 3 + 2 * 4)
    waves = torch.cos(x[:, 2:] * periodic.frequency[1] + periodic.phase[1])
    torch.testing.assert_close(found[:, 7:], waves @ periodic.weight[1] + periodic.bias[1])


@pytest.mark.parametrize(("hidden", "bits", "kinds"), [((8, 4), False, 5), ((8, 4), True, 2), ((), False, 1)])
def test_models_are_separate(hidden, bits, kinds):
    """The models are separate: the loss of one leaves the others alone."""
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    x = (x > 0).float() if bits else x
    model = ModelMix(3, hidden, 2, 0.5, PiecewiseLinear(x)).eval()
    assert len(model.models) == len(model.penalties) == kinds
    assert model(x).shape == (50, kinds * 2)
    for kind in range(kinds):
        model.zero_grad()
        model(x)[:, 2 * kind : 2 * kind + 2].sum().backward()
        touched = [
            any(p.grad is not None and bool(p.grad.any()) for p in m.parameters()) for m in model.models
        ]
        assert touched == [other == kind for other in range(kinds)]


def test_dropout_drops_its_share_and_keeps_the_mean():
    x = torch.ones(400, 251)
    layer = ByteDropout(0.25)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = layer(x)
    assert found.unique().tolist() == pytest.approx([0, 4 / 3])
    assert float((found == 0).double().mean()) == pytest.approx(0.25, abs=0.005)
    assert layer.eval()(x) is x
