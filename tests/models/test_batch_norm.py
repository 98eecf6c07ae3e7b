"""Batch norm: masked statistics, freezing, passes that do not count, recalibration."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mmb.models.batch_norm import (
    FrozenBatchNorm,
    MaskedBatchNorm,
    freeze_batch_norm,
    recalibrate_batch_norm,
    untracked_batch_norm,
)


def rows(count, seed=0, shift=0.0):
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + shift


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5), nn.Sequential(nn.BatchNorm1d(4))
    ).double()


def statistics(model):
    return {name: value.clone() for name, value in model.named_buffers()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("check", [torch.autograd.gradcheck, torch.autograd.gradgradcheck])
@pytest.mark.parametrize("affine", [True, False])
def test_derivatives_with_masked_rows(affine, check):
    layer = MaskedBatchNorm(3, affine=affine).double()
    mask = torch.tensor([1, 1, 0, 1, 1, 1, 0], dtype=torch.bool)
    assert check(lambda given: layer(given, mask), rows(7, shift=5.0).requires_grad_())


@pytest.mark.parametrize("momentum", [0.1, None])
def test_masked_rows_count_for_nothing(momentum):
    """Equal to torch's own layer on the real rows alone: outputs, gradients and running statistics."""
    plain, masked = (
        nn.BatchNorm1d(3, momentum=momentum).double(),
        MaskedBatchNorm(3, momentum=momentum).double(),
    )
    with torch.no_grad():
        for layer in (plain, masked):
            layer.weight.copy_(torch.tensor([0.5, 2.0, -1.0]))
            layer.bias.copy_(torch.tensor([1.0, -1.0, 0.0]))
    for step in range(3):
        real, padding = rows(7, seed=step, shift=5.0), rows(4, seed=9) * 100
        mixed = torch.cat([real, padding])[[7, 0, 1, 2, 8, 3, 4, 9, 5, 6, 10]].requires_grad_()
        mask = torch.tensor([0, 1, 1, 1, 0, 1, 1, 0, 1, 1, 0], dtype=torch.bool)
        real = real.requires_grad_()
        one, two = plain(real), masked(mixed, mask)[mask]
        torch.testing.assert_close(two, one)
        one.pow(3).sum().backward()
        two.pow(3).sum().backward()
        torch.testing.assert_close(mixed.grad[mask], real.grad)
        assert (mixed.grad[~mask] == 0).all()
    for (name, want), got in zip(plain.state_dict().items(), masked.state_dict().values(), strict=True):
        torch.testing.assert_close(got, want, msg=name)
    plain.eval(), masked.eval()
    torch.testing.assert_close(masked(mixed, mask)[mask], plain(real))


def test_masked_statistics_are_float32_in_low_precision():
    layer = MaskedBatchNorm(3)
    values = (rows(1000) * 2 + 100).to(torch.bfloat16)  # sums of their squares overwhelm bfloat16
    output = layer(values, torch.ones(1000, dtype=torch.bool))
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), nn.BatchNorm1d(3)(values.float()), rtol=0.02, atol=0.02)


def test_frozen_layers_train_as_they_evaluate():
    model = network()
    model(rows(50, shift=2.0))
    model.eval()
    names, expected = set(model.state_dict()), model(rows(6))
    assert freeze_batch_norm(model) == 2
    assert isinstance(model[4][0], FrozenBatchNorm)
    assert set(model.state_dict()) == names
    before = statistics(model)
    model.train()
    model[3].eval()  # no dropout
    output = model(rows(6))
    torch.testing.assert_close(output, expected)
    output.sum().backward()
    assert same(statistics(model), before)
    assert model[1].weight.grad is not None
    assert freeze_batch_norm(model) == 0


def test_layers_without_statistics_cannot_be_frozen():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3, track_running_stats=False))
    with pytest.raises(ValueError, match="running statistics"):
        freeze_batch_norm(model)
    assert isinstance(model[0], nn.BatchNorm1d)


def test_untracked_passes_leave_no_trace():
    model = network()
    model[3].p = 0.0
    before, expected = statistics(model), network()
    expected[3].p = 0.0
    with untracked_batch_norm(model):
        torch.testing.assert_close(model(rows(8)), expected(rows(8)))
    assert same(statistics(model), before)
    with pytest.raises(ZeroDivisionError), untracked_batch_norm(model):
        raise ZeroDivisionError
    model(rows(8))
    assert not same(statistics(model), before)


def test_recalibration_sets_the_mean_over_batches():
    model = network()
    for step in range(20):  # training on other rows than those it is used on
        model(rows(16, seed=step, shift=3.0))
    model[3].train(False)
    modes = [module.training for module in model.modules()]
    batches = [rows(32, seed=100 + step) for step in range(5)]
    assert recalibrate_batch_norm(model, iter(batches)) == 5
    assert [module.training for module in model.modules()] == modes
    assert [layer.momentum for layer in (model[1], model[4][0])] == [0.1, 0.1]
    hidden = torch.stack([model[0](batch) for batch in batches])
    torch.testing.assert_close(model[1].running_mean, hidden.mean((0, 1)))
    torch.testing.assert_close(model[1].running_var, hidden.var(1).mean(0))
    deep = torch.stack([nn.functional.batch_norm(h, None, None, training=True).relu() for h in hidden])
    torch.testing.assert_close(model[4][0].running_mean, deep.mean((0, 1)))  # dropout was off


@pytest.mark.parametrize(("batches", "error"), [([], ValueError), ([rows(4), rows(4)[:, :2]], RuntimeError)])
def test_failed_recalibration_changes_nothing(batches, error):
    model = network()
    model(rows(16))
    before = statistics(model)
    with pytest.raises(error):
        recalibrate_batch_norm(model, batches)
    assert same(statistics(model), before)
    assert all(module.training for module in model.modules())
    assert model[1].momentum == 0.1
