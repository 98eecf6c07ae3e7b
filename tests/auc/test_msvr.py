"""MSVRAveragePrecision: the plain average without its correction, exact with all rows, closer in between."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from mmb import auc
from mmb.auc.parts.previous_weights import PreviousWeights
from mmb.models import mlp
from objective_bank import make_data


def moved(objective, model, batches, lr=0.5):
    """Gradients of the first weights and tracked numbers of each of some steps of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for batch in batches:
        optimizer.zero_grad()
        objective.backward(model, batch)
        yield next(model.parameters()).grad.clone(), objective.above.value.clone()
        optimizer.step()


def exact(objective, model, data):
    """`P` and `Q` of every positive at the weights of the model, from all rows."""
    fresh = auc.AveragePrecision(data.labels, beta=1.0, surrogate=objective.surrogate).to(data.inputs.dtype)
    fresh(model(data.inputs).detach(), data.labels, rows=torch.arange(len(data.inputs)))
    return fresh.above.value


@pytest.mark.parametrize("sampled", [False, True])
def test_without_the_correction_it_is_the_plain_average(sampled):
    data = make_data()
    batches = [
        data.sampled([0, 2, 3]) if sampled else data.dense(data.rand(24).argsort()[:12]) for _ in range(4)
    ]
    other = copy.deepcopy(data.model)
    plain = auc.AveragePrecision(data.labels, beta=0.3).double()
    reduced = auc.MSVRAveragePrecision(data.labels, other, beta=0.3, gamma=0.0).double()
    steps = zip(moved(plain, data.model, batches), moved(reduced, other, batches), strict=True)
    for ours, theirs in steps:
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("surrogate", ["squared_hinge", "logistic"])
def test_with_all_rows_in_every_batch_it_is_exact_and_the_plain_average_lags(surrogate):
    data = make_data()
    start = copy.deepcopy(data.model.state_dict())
    for make, exactly in (
        (lambda: auc.MSVRAveragePrecision(data.labels, data.model, beta=0.2, surrogate=surrogate), True),
        (lambda: auc.AveragePrecision(data.labels, beta=0.2, surrogate=surrogate), False),
    ):
        data.model.load_state_dict(start)
        objective = make().double()
        for step, (_, tracked) in enumerate(moved(objective, data.model, [data.dense()] * 4)):
            error = (tracked - exact(objective, data.model, data)).abs().max()
            assert error < 1e-12 if exactly or step == 0 else error > 1e-4


def test_one_step_of_the_recursion():
    data = make_data(tasks=1)
    objective = auc.MSVRAveragePrecision(data.labels, data.model, beta=0.25, gamma=0.6).double()
    rows = torch.arange(16)
    values = [tracked for _, tracked in moved(objective, data.model, [data.dense(rows)])]
    before = batch_values(data, rows, objective.previous)
    now = batch_values(data, rows, None)
    objective.backward(data.model, data.dense(rows))
    met = before[:, 0] > 0
    expected = 0.75 * values[0] + 0.25 * now + 0.6 * (now - before)
    expected[:, 1].clamp_(min=0)
    torch.testing.assert_close(objective.above.value[met], expected[met])
    assert bool((objective.above.value[~met] == 0).all())


def batch_values(data, rows, previous):
    """The numbers of a batch at the weights of the model, or at previous ones."""
    if previous is not None:
        with previous.put_in(data.model):
            return batch_values(data, rows, None)
    fresh = auc.AveragePrecision(data.labels, beta=1.0).double()
    fresh(data.model(data.inputs[rows]).detach(), data.labels[rows], rows=rows)
    return fresh.above.value


def test_it_tracks_closer_than_the_plain_average_at_any_weight():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(160, 6, generator=generator, dtype=torch.float64)
    labels = (inputs[:, :1] + torch.randn(160, 1, generator=generator) > 0.8).to(torch.int8)
    path = 0.03 * torch.randn(6, 1, generator=generator, dtype=torch.float64)  # the weights move along it

    def error(make):
        model = nn.Linear(6, 1).double()
        nn.init.zeros_(model.weight)
        objective = make(model).double()
        draws, errors = torch.Generator().manual_seed(1), []
        for step in range(150):
            with torch.no_grad():
                model.weight.copy_(step * path.T)
            rows = torch.randperm(160, generator=draws)[:80]
            objective.backward(model, auc.DenseBatch(inputs[rows], labels[rows], None, rows))
            fresh = auc.AveragePrecision(labels, beta=1.0).double()
            fresh(model(inputs).detach(), labels, rows=torch.arange(160))
            errors.append((objective.above.value - fresh.above.value).square().mean())
        return float(torch.stack(errors[50:]).mean())

    plain = min(error(lambda model, b=b: auc.AveragePrecision(labels, beta=b)) for b in (0.05, 0.2, 0.5, 1.0))
    reduced = error(lambda model: auc.MSVRAveragePrecision(labels, model, beta=0.1))
    assert reduced < 0.7 * plain


def test_the_other_evaluation_leaves_weights_statistics_and_random_numbers_alone():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    previous = PreviousWeights(model)
    with torch.no_grad():
        model[0].weight.add_(1.0)
    before, inputs = copy.deepcopy(model.state_dict()), torch.randn(8, 3)
    torch.manual_seed(0)
    with previous.put_in(model):
        torch.testing.assert_close(model[0].weight, before["0.weight"] - 1)
        there = model(inputs)
    drawn = torch.rand(3)
    torch.manual_seed(0)
    assert bool((torch.rand(3) == drawn).all())
    assert not there.requires_grad
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_it_resumes_bit_for_bit_and_refuses_scores_alone():
    data = make_data()
    objective = auc.MSVRAveragePrecision(data.labels, data.model).double()
    batches = [data.dense(data.rand(24).argsort()[:12]) for _ in range(4)]
    list(moved(objective, data.model, batches[:2]))
    other = copy.deepcopy(data.model)
    again = auc.MSVRAveragePrecision(data.labels, other).double()
    again.load_state_dict(objective.state_dict())
    for ours, theirs in zip(
        moved(objective, data.model, batches[2:]), moved(again, other, batches[2:]), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    with pytest.raises(TypeError, match="backward"):
        objective(data.model(data.inputs), data.labels)
    with pytest.raises(ValueError, match="gamma"):
        auc.MSVRAveragePrecision(data.labels, data.model, gamma=-1.0)


def test_one_task_may_have_plain_vectors_of_scores():
    data = make_data(tasks=1)
    column, plain = nn.Linear(4, 1).double(), nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)).double()
    plain[0].load_state_dict(column.state_dict())
    objectives = [auc.MSVRAveragePrecision(data.labels, model).double() for model in (column, plain)]
    steps = [
        moved(one, model, [data.dense()] * 3) for one, model in zip(objectives, (column, plain), strict=True)
    ]
    for ours, theirs in zip(*steps, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_another_model_is_refused_and_nothing_changes():
    data = make_data()
    objective = auc.MSVRAveragePrecision(data.labels, data.model).double()
    before, other = copy.deepcopy(objective.state_dict()), mlp(4, [7], 5).double()
    for use in (lambda: objective.backward(other, data.dense()), lambda: objective.start_at(other)):
        with pytest.raises(ValueError, match=r"model.*65 weights.*75"):
            use()
    for name, value in objective.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("sampled", [False, True])
def test_where_the_previous_weights_give_no_numbers_nothing_counts_as_changed(sampled):
    data = make_data()
    objective = auc.MSVRAveragePrecision(data.labels, data.model).double()
    plain = auc.AveragePrecision(data.labels).double()
    batches = [data.sampled([0, 2]) if sampled else data.dense() for _ in range(2)]
    for batch in batches:
        objective.previous.value.fill_(float("nan"))
        for one in (objective, plain):
            one.backward(data.model, batch)
        torch.testing.assert_close(objective.above.value, plain.above.value, rtol=1e-12, atol=0)


def test_in_a_sum_with_cross_entropy():
    data = make_data()
    both = auc.Sum(
        [(1.0, auc.CrossEntropy(data.labels)), (1.0, auc.MSVRAveragePrecision(data.labels, data.model))]
    ).double()
    numbers = both.backward(data.model, data.dense())
    assert bool(numbers["loss"].isfinite())
    assert next(data.model.parameters()).grad is not None
