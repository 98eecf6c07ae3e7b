"""After a warm start, objectives stay near cross-entropy, whatever the units of their loss and of scores."""

import pytest
import torch

from mmb import auc
from objective_bank import estimate, make_data, same, state

ANCHORED = [auc.MinMaxAUC, auc.PartialAUC, auc.PairwisePartialAUC, auc.SOPAs, auc.HeadCompositionalAUC]


def made(kind, data, **options):
    model = [data.model] if kind is auc.HeadCompositionalAUC else []
    return kind(data.labels, *model, **options).double()


def warm(kind, data, **options):
    objective = made(kind, data, **options)
    objective.warm_start(data.model(data.inputs).detach(), data.labels)
    return objective


def at_logits(objective, data):
    """The gradient at the logits `[n, m]` of one dense batch, for each task."""
    logits = data.model(data.inputs).detach().requires_grad_()
    objective(logits, data.labels, rows=torch.arange(len(logits))).backward()
    return logits.grad


@pytest.mark.parametrize("kind", ANCHORED[:4])
def test_the_gradient_is_the_mean_with_that_of_cross_entropy_at_the_same_size(kind):
    data = make_data()
    own, ce = at_logits(warm(kind, data, anchor=0.0), data), at_logits(made(auc.CrossEntropy, data), data)
    for anchor in (0.5, 1.0):
        found = at_logits(warm(kind, data, anchor=anchor), data)
        same_size = own * (ce.norm(dim=0) / own.norm(dim=0))
        torch.testing.assert_close(found, (anchor * ce + same_size) / (1 + anchor))


@pytest.mark.parametrize("kind", ANCHORED)
def test_nothing_is_held_before_a_warm_start(kind):
    data = make_data()
    free, held = made(kind, data, anchor=0.0), made(kind, data)
    same(estimate(free, data, data.dense()), estimate(held, data, data.dense()))
    assert state(free).keys() == state(held).keys()
    with pytest.raises(ValueError, match="anchor"):
        made(kind, data, anchor=-1.0)


@pytest.mark.parametrize("kind", ANCHORED)
def test_it_resumes(kind):
    """Also the other way round: state of before a warm start has no anchor."""
    data = make_data()
    cold, trained = made(kind, data), warm(kind, data)
    before = state(cold)
    estimate(trained, data, data.dense())
    cold.load_state_dict(state(trained))
    same(estimate(trained, data, data.dense()), estimate(cold, data, data.dense()))
    same(state(trained), state(cold))
    trained.load_state_dict(before)
    assert trained.anchored is None


def test_a_part_of_a_sum_is_not_held_twice():
    data = make_data()
    found = []
    for anchor in (0.0, 1.0):
        parts = [(1.0, auc.CrossEntropy(data.labels)), (1.0, auc.MinMaxAUC(data.labels, anchor=anchor))]
        objective = auc.Sum(parts).double()
        objective.warm_start(data.model(data.inputs).detach(), data.labels)
        found.append(at_logits(objective, data))
    assert torch.equal(*found)


def test_pairs_are_compared_in_units_of_the_deviation_within_classes():
    """So after a warm start, scores ten times as large have the same loss."""
    data = make_data(rows=200)
    scores = 30 * data.model(data.inputs).detach()
    values = []
    for factor in (1.0, 10.0):
        objective = auc.PairwisePartialAUC(data.labels, max_fpr=0.5, anchor=0.0, gradient="full", tau2=1e-12)
        objective.double().warm_start(factor * scores, data.labels)
        values.append(objective.eval()(factor * scores, data.labels))
    torch.testing.assert_close(*values)
    task = scores[:, 0], data.labels[:, 0]
    within = 10 * (0.5 * sum(task[0][task[1] == k].var(correction=0) for k in (0, 1))).sqrt()
    torch.testing.assert_close(objective.unit[0], within)
