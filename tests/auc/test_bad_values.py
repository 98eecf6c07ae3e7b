"""Values that nobody should feed: refused before anything moves, or skipped and counted."""

from __future__ import annotations

import copy
import re
from dataclasses import replace

import pytest
import torch

from bad_batches import Fuzz, sane
from mmb import auc
from mmb.models import mlp
from objective_bank import OBJECTIVES, estimate, make, make_data, same, state


def test_whatever_is_fed_state_stays_finite_and_unchanged_if_the_batch_is_refused():
    """Three thousand random cases; `benchmarks/fuzz.py` has more."""
    fuzz = Fuzz()
    for number in range(3000):
        fuzz.run(number)
    wanted = ("refused", "without effect", "skipped", "missing labels", "large values", "went on")
    assert all(fuzz.outcomes[outcome] > 100 for outcome in wanted)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e30])
def test_the_error_names_argument_task_row_and_value(value):
    data = make_data(dtype=torch.float32)
    objective = make("partial-full", data)
    scores = torch.zeros(24, 5)
    scores[1, 3] = value  # labeled for every task
    with pytest.raises(auc.BadValueError, match=rf"scores.*{re.escape(f'{value:g}')}.*task 3, row 1"):
        objective(scores, data.labels)
    sampled = torch.zeros(2, 24)
    sampled[1, 0] = value
    with pytest.raises(auc.BadValueError, match=rf"scores.*{re.escape(f'{value:g}')}.*task 4, row 0"):
        objective(sampled, data.labels[:, [2, 4]].T, torch.tensor([2, 4]))


@pytest.mark.parametrize("name", ["scores", "labels", "weights", "rows"])
def test_arrays_that_are_no_tensors_are_named(name):
    labels = torch.tensor([0, 1, 0, 1])
    batch = {"scores": torch.zeros(4), "labels": labels, "weights": torch.ones(4), "rows": torch.arange(4)}
    objective = auc.PartialAUC(labels)
    objective(**batch)
    with pytest.raises(TypeError, match=rf"{name}: .*torch\.Tensor, got ndarray.*as_tensor"):
        objective(**batch | {name: batch[name].numpy()})


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_weights_that_are_negative_or_not_finite_are_refused(name, value):
    data = make_data()
    objective = make(name, data)
    before = state(objective)
    for shape in ((24,), (24, 5)):
        weights = torch.ones(shape)
        weights[1] = value
        with pytest.raises(auc.BadValueError, match=r"weights.*at least 0.*row 1"):
            objective.backward(data.model, data.dense(weights=weights))
    batch = replace(data.sampled([3, 1]), weights=torch.tensor([1.0, value]))
    with pytest.raises(auc.BadValueError, match=r"weights.*task 1"):
        objective.backward(data.model, batch)
    same(state(objective), before)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_refused_batch_has_no_effect_where_nothing_may_raise(name):
    """On a GPU, and in one of several processes."""
    data = make_data()
    objective = make(name, data)
    objective.can_raise = False
    before = state(objective)
    bad = copy.deepcopy(data)
    bad.inputs[4] = torch.nan
    numbers = objective.backward(data.model, data.dense())
    assert bool(numbers["loss"].isfinite())
    objective.load_state_dict(before)
    scores = bad.model(bad.inputs).detach().requires_grad_()
    assert bool(scores.isnan().any())
    loss = objective(scores, data.labels, rows=torch.arange(24))
    loss.backward()
    assert bool(loss.isnan())
    assert not scores.grad.any()
    same(state(objective), before)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_skipped_entries_count_as_missing(name):
    data = make_data()
    objective = make(name, data)
    objective.bad_values = "skip"
    other = copy.deepcopy(objective)
    scores = data.rand(24, 5)
    bad = torch.zeros(24, 5, dtype=torch.bool)
    bad[5:9, :3] = True
    loss = objective(torch.where(bad, torch.nan, scores), data.labels, rows=torch.arange(24))
    expected = other(scores, data.labels.masked_fill(bad, -1), rows=torch.arange(24))
    assert torch.equal(loss, expected)
    same(state(objective), state(other))
    assert int(objective.loss_parts()["skipped"]) == int((bad & (data.labels >= 0)).sum())
    assert int(other.loss_parts()["skipped"]) == 0
    assert "skipped" in objective.backward(data.model, data.dense())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_parameters_that_are_not_finite_do_not_spread(name):
    """As an optimizer that diverges may leave them."""
    data = make_data()
    objective = make(name, data)
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter[1] = torch.nan
    for batch in (data.dense(), data.sampled([1, 3])):
        estimate(objective, data, batch)
    for name, parameter in objective.named_parameters():
        assert parameter[1].isnan().all()
        with torch.no_grad():
            objective.get_parameter(name)[1] = 0.0
    assert sane(objective)


FED = {
    "float64 weights": lambda b: replace(b, weights=torch.ones(2, dtype=torch.float64)),
    "whole weights": lambda b: replace(b, weights=torch.ones(2, dtype=torch.int64)),
}
REFUSED = {
    "complex weights": (lambda b: replace(b, weights=torch.ones(2) * 1j), TypeError, "weights.*real"),
    "weights with gradients": (
        lambda b: replace(b, weights=torch.ones(2, requires_grad=True)),
        ValueError,
        "weights.*gradients",
    ),
    "labels with gradients": (
        lambda b: replace(b, labels=b.labels.float().clamp(min=0).requires_grad_()),
        ValueError,
        "labels.*gradients",
    ),
    "int16 tasks": (lambda b: replace(b, tasks=b.tasks.short()), TypeError, "tasks.*int64.*int16"),
    "no task": (
        lambda b: auc.TaskBatch(b.inputs[:0], b.labels[:0], b.tasks[:0], b.rows[:0]),
        ValueError,
        "tasks.*expected|empty",
    ),
}
EVERY = [*OBJECTIVES, "compositional", "heads"]


def any_objective(name):
    data = make_data(dtype=torch.float32)
    if name in OBJECTIVES:
        return data, make(name, data)
    kind = auc.CompositionalAUC if name == "compositional" else auc.HeadCompositionalAUC
    return data, kind(data.labels, data.model)


@pytest.mark.parametrize("fed", FED)
@pytest.mark.parametrize("name", EVERY)
def test_weights_may_be_of_any_real_dtype(name, fed):
    data, objective = any_objective(name)
    other = copy.deepcopy(objective)
    batch = data.sampled([1, 4])
    changed = FED[fed](batch)
    found = estimate(objective, data, changed)
    same(found, estimate(other, data, batch))
    same(state(objective), state(other))
    assert all(value.dtype == torch.float32 for value in state(objective).values())


@pytest.mark.parametrize("fed", REFUSED)
@pytest.mark.parametrize("name", EVERY)
def test_what_cannot_be_computed_with_is_refused(name, fed):
    data, objective = any_objective(name)
    before = state(objective)
    change, error, message = REFUSED[fed]
    with pytest.raises(error, match=message):
        objective.backward(data.model, change(data.sampled([1, 4])))
    same(state(objective), before)


def test_a_compositional_step_that_is_not_finite_is_refused():
    data = make_data()
    batch = data.sampled([1, 4])
    lower = data.sampled([1, 4])
    lower.inputs[1, 2], lower.labels[1, 2] = torch.nan, 0
    for kind in (auc.CompositionalAUC, auc.HeadCompositionalAUC):
        objective = kind(data.labels, data.model).double()
        before = state(objective)
        with pytest.raises(auc.BadValueError, match="task 4"):
            objective.backward(data.model, replace(batch, lower=lower))
        same(state(objective), before)
        assert all(p.grad is None for p in data.model.parameters())
        objective.can_raise = False
        assert bool(objective.backward(data.model, replace(batch, lower=lower))["loss"].isnan())
        assert sane(objective)
        data.model.zero_grad(set_to_none=True)


def test_a_network_that_diverges_is_told_of_before_thresholds_are():
    data = make_data()
    objective = make("partial-full", data)
    model = mlp(4, [6], 5).double()
    with torch.no_grad():
        model.bias.fill_(torch.inf)
    with pytest.raises(auc.BadValueError, match="step size"):
        objective.backward(model, data.dense())
    with pytest.raises(auc.BadValueError, match="scores"):
        objective.warm_start(model(data.inputs).detach(), data.labels)
