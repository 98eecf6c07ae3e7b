"""A sum of objectives: weights in units of the first part, and nothing lost of what the parts can do."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest
import torch

from mmb import auc
from objective_bank import estimate, make_data, randomize_state, same, state

BETA = 0.05


def parts_of(data, **options):
    made = [auc.CrossEntropy(data.labels), auc.MinMaxAUC(data.labels, margin=3.0, **options)]
    return [part.to(data.inputs.dtype) for part in made]


def batches_of(data):
    return [data.dense(), data.sampled([0, 3]), data.dense(torch.arange(4, 16)), data.sampled([3, 1, 4])]


def gradient_at_logits(part, data, batch, scores):
    """By autograd through the part's loss, `[k, rows]`, without task weights."""
    leaf = scores.detach().clone().requires_grad_()
    tasks = getattr(batch, "tasks", None)
    part(leaf, batch.labels, tasks, rows=batch.rows).backward()
    gradient = leaf.grad if tasks is not None else leaf.grad.T
    tasks = torch.arange(data.num_tasks) if tasks is None else tasks
    return gradient, gradient * (len(tasks) / part.task_weight[tasks, None]), tasks


@pytest.mark.parametrize("weighting", [0.0, 0.6])
def test_the_gradient_is_that_of_the_parts_in_units_of_the_first(weighting):
    data, weights = make_data(), (0.8, 0.25)
    alone = parts_of(data, task_weighting=weighting)
    objective = auc.Sum(
        list(zip(weights, parts_of(data, task_weighting=weighting), strict=True)), beta=BETA
    ).double()
    sizes = torch.zeros(2, data.num_tasks).double()
    for batch in batches_of(data):
        scores = data.rand(*batch.labels.shape) * 4 - 2
        expected = 0.0
        for index, part in enumerate(alone):
            whole, own, tasks = gradient_at_logits(part, data, batch, scores)
            sizes[index, tasks] = (1 - BETA) * sizes[index, tasks] + BETA * (own**2).sum(1)
            expected += weights[index] * (sizes[0] / sizes[index]).sqrt()[tasks, None] * whole
        found, _, _ = gradient_at_logits(objective, data, batch, scores)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(objective.size.T, sizes)
    same(state(alone[1]), state(objective.parts["MinMaxAUC"]))


def test_a_plain_sum_has_the_gradient_of_the_sum_of_losses():
    data, weights = make_data(), (0.8, 0.25)
    parts, again = parts_of(data), parts_of(data)
    objective = auc.Sum(list(zip(weights, parts, strict=True)), rescale=False, names=["ce", "auc"]).double()
    for batch in batches_of(data):
        for module in (data.model, objective, *again):
            module.zero_grad()
        numbers = objective.backward(data.model, batch)
        found = [p.grad.clone() for p in (*data.model.parameters(), *objective.parameters())]
        data.model.zero_grad()
        tasks = getattr(batch, "tasks", None)
        scores = data.model(batch.inputs) if tasks is None else data.model.task_scores(batch.inputs, tasks)
        losses = [part(scores, batch.labels, tasks) for part in again]
        total = sum(weight * loss for weight, loss in zip(weights, losses, strict=True))
        total.backward()
        torch.testing.assert_close(numbers["loss"], total.detach())
        torch.testing.assert_close(numbers["auc.loss"], losses[1].detach())
        expected = [p.grad for p in (*data.model.parameters(), *again[1].parameters())]
        torch.testing.assert_close(found, expected)


def test_units_of_a_part_do_not_matter_but_those_of_the_first_do():
    """Focal loss with a hundredth of the weight is the same part; as the first part it shrinks everything."""

    class Small(auc.CrossEntropy):
        def loss(self, entries):
            return 0.01 * super().loss(entries)

    def total(*kinds):
        data = make_data()
        parts = [(weight, kind(data.labels)) for weight, kind in zip((1.0, 0.5), kinds, strict=True)]
        return estimate(auc.Sum(parts).double(), data, data.dense())

    same(total(auc.Focal, Small), total(auc.Focal, auc.CrossEntropy), 1e-12)
    shrunk = total(Small, auc.Focal)
    same({k: 100 * v for k, v in shrunk.items()}, total(auc.CrossEntropy, auc.Focal), 1e-12)


def test_parameters_of_a_part_move_as_if_it_were_alone():
    data = make_data()
    alone = parts_of(data)[1]
    objective = auc.Sum(list(zip((1.0, 0.01), parts_of(data), strict=True))).double()
    expected = estimate(alone, data, data.dense())
    found = estimate(objective, data, data.dense())
    for name in ("mean_positive", "mean_negative"):
        assert torch.equal(found[f"parts.MinMaxAUC.{name}"], expected[name])


def test_a_part_without_a_gradient_so_far_waits():
    """No positive in sight, so there are no pairs: nothing is divided by zero."""
    data = make_data()
    parts = [auc.CrossEntropy(data.labels), auc.MiniBatchPartialAUC(data.labels)]
    objective = auc.Sum([(1.0, part) for part in parts]).double()
    rows = torch.arange(8, 16)
    batch = data.dense(rows)
    batch.labels[batch.labels == 1] = 0
    found = estimate(objective, data, batch)
    same(found, estimate(auc.CrossEntropy(data.labels).double(), data, batch), 1e-12)
    assert all(bool(value.isfinite().all()) for value in state(objective).values())
    after = estimate(objective, data, data.dense())
    assert all(bool(value.isfinite().all()) for value in after.values())


KINDS = ["dense", "sampled"]


def compositional(data, **options):
    return [
        auc.HeadCompositionalAUC(data.labels, data.model, inner_lr=0.3, **options),
        auc.CompositionalAUC(data.labels, data.model, inner_lr=0.3, **options),
    ]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", [0, 1])
def test_parts_may_evaluate_the_model(which, kind, first):
    """The gradient is that of each part alone, task by task in units of the first part."""
    data = make_data()
    batch = data.dense() if kind == "dense" else data.sampled([2])
    ce, own = auc.CrossEntropy(data.labels).double(), compositional(data)[which].double()
    randomize_state(own, data)
    parts = [(0.5, copy.deepcopy(ce)), (2.0, copy.deepcopy(own))]
    plain = auc.Sum([(w, copy.deepcopy(p)) for w, p in parts], rescale=False, names=["ce", "ct"]).double()
    alone = [estimate(ce, data, batch), estimate(own, data, batch)]
    found = estimate(plain, data, batch)
    for key, value in found.items():
        name = key.removeprefix("parts.ct.")
        torch.testing.assert_close(value, 0.5 * alone[0].get(name, 0 * value) + 2 * alone[1][name])
    if kind == "dense":
        return
    # with one task there is one ratio, which the whole estimate of a part is multiplied by
    rescaled = auc.Sum(parts[::-1] if first else parts, names=["ct", "ce"] if first else ["ce", "ct"])
    rescaled = rescaled.double()
    found = estimate(rescaled, data, batch)
    size = rescaled.size[2]
    ratio = (size[0] / size[1]).sqrt()
    factors = (0.5 * ratio, 2.0) if first else (0.5, 2 * ratio)
    for key in ("weight", "bias"):
        torch.testing.assert_close(found[key], factors[0] * alone[0][key] + factors[1] * alone[1][key])
    assert bool((size > 0).all())


def test_a_refused_batch_leaves_the_state_of_all_parts():
    data = make_data()
    dual, own = auc.MinMaxAUC(data.labels), compositional(data)[1]
    objective = auc.Sum([(1.0, dual), (1.0, own)]).double()
    before, batch = state(objective), data.sampled([0, 1])
    bad = auc.TaskBatch([batch.inputs, "text"], batch.labels, batch.tasks)
    with pytest.raises((TypeError, AttributeError)):
        objective.backward(data.model, bad)
    same(state(objective), before)
    per_positive = auc.Sum([(1.0, auc.MinMaxAUC(data.labels)), (1.0, auc.SOPA(data.labels))]).double()
    before = state(per_positive)
    with pytest.raises(ValueError, match="rows is missing"):
        per_positive(data.rand(24, 5), data.labels)
    same(state(per_positive), before)


def test_everything_else_is_that_of_the_parts():
    data = make_data()
    made = [auc.CrossEntropy(data.labels), auc.PartialAUC(data.labels, max_fpr=0.5), auc.SOPA(data.labels)]
    objective = auc.Sum([(1.0, part) for part in made], names=["ce", "pauc", "sopa"]).double()
    assert objective.block_rates().keys() == {
        "parts.pauc.lr_dual",
        "parts.pauc.tracked.lr",
        "parts.pauc.tracked.operating_points.lr",
        "parts.sopa.lr_positive",
    }
    assert objective.per_positive_state() == ["parts.sopa.level.value"]
    scores = data.model(data.inputs).detach()
    objective.warm_start(scores, data.labels)
    found = objective.thresholds()
    assert torch.equal(found, made[1].thresholds())
    assert found.abs().sum() > 0
    numbers = objective.backward(data.model, data.dense())
    names = {"loss", *(f"{name}.loss" for name in objective.parts), "pauc.factor", "sopa.factor"}
    assert numbers.keys() == names | {"pauc.gap", "pauc.dual_error", "pauc.threshold"}
    assert float(numbers["loss"]) == pytest.approx(sum(float(numbers[f"{n}.loss"]) for n in objective.parts))


def test_sums_can_be_nested():
    data = make_data()
    ce, minmax = parts_of(data)
    inner = auc.Sum([(1.0, ce), (2.0, minmax)], rescale=False)
    outer = auc.Sum([(3.0, inner)], rescale=False).double()
    ce, minmax = parts_of(data)
    flat = auc.Sum([(3.0, ce), (6.0, minmax)], rescale=False).double()
    theirs = estimate(flat, data, data.dense())
    ours = estimate(outer, data, data.dense())
    same({k.replace("parts.Sum.", ""): v for k, v in ours.items()}, theirs, 1e-12)


@pytest.mark.parametrize("weight", [0, -1.0, float("nan"), float("inf"), "1", None, True])
def test_weights_must_be_positive(weight):
    data = make_data()
    with pytest.raises(ValueError, match=r"weight of part 1.*positive"):
        auc.Sum([(1.0, auc.CrossEntropy(data.labels)), (weight, auc.Focal(data.labels))])


def test_parts_that_do_not_belong_together_are_refused():
    data, other = make_data(), make_data(tasks=4)
    ce = auc.CrossEntropy(data.labels)
    with pytest.raises(ValueError, match="at least one"):
        auc.Sum([])
    with pytest.raises(TypeError, match="pairs"):
        auc.Sum([ce])
    with pytest.raises(ValueError, match=r"part 1.*in a sum already"):
        auc.Sum([(1.0, ce), (1.0, ce)])
    with pytest.raises(ValueError, match=r"part 1.*4 tasks.*5"):
        auc.Sum([(1.0, ce), (1.0, auc.CrossEntropy(other.labels))])
    with pytest.raises(ValueError, match=r"part 1.*other labels"):
        auc.Sum([(1.0, ce), (1.0, auc.CrossEntropy(data.labels[:20]))])
    with pytest.raises(ValueError, match="names"):
        auc.Sum([(1.0, ce), (1.0, auc.Focal(data.labels))], names=["a", "a"])
    for name in ("a.b", "", "keys", "training", 1):
        with pytest.raises(ValueError, match=f"names.*{name!r}"):
            auc.Sum([(1.0, ce), (1.0, auc.Focal(data.labels))], names=["a", name])
    first = auc.Sum([(1.0, ce), (1.0, auc.Focal(data.labels))])  # none of the errors has claimed it
    with pytest.raises(ValueError, match=r"part 0.*in a sum already"):
        auc.Sum([(1.0, ce)])
    auc.Sum([(1.0, copy.deepcopy(first).parts["Focal"])])
    del first
    gc.collect()
    auc.Sum([(1.0, ce)])


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_parts_of_a_copy_are_in_it(copied):
    labels = make_data().labels
    first = auc.Sum([(1.0, auc.CrossEntropy(labels)), (1.0, auc.Focal(labels))])
    other = copied(first)
    with pytest.raises(ValueError, match=r"part 0.*in a sum already"):
        auc.Sum([(1.0, other.parts["Focal"])])
    shared, part = other.parts["Focal"] is first.parts["Focal"], first.parts["Focal"]
    del other
    gc.collect()
    with pytest.raises(ValueError, match=r"part 0.*in a sum already"):
        auc.Sum([(1.0, part)])
    assert shared == (copied is copy.copy)
