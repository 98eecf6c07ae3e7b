"""What every objective must do, whichever way it is fed."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from itertools import combinations, cycle

import pytest
import torch
from torch import nn

from mmb import auc
from mmb.models import mlp
from objective_bank import (
    MARGIN,
    OBJECTIVES,
    PER_POSITIVE,
    STATELESS,
    WITH_MODEL,
    estimate,
    make,
    make_data,
    same,
    state,
)

# linear in the weights of a batch's entries, so that a dense estimate is unbiased exactly
LINEAR = ["minmax", "minmax-logit", "partial-practical", "partial-range-practical", "cross-entropy", "focal"]
# bilinear: unbiased up to a known factor, since an entry is never paired with itself
BILINEAR = ["pairwise-logistic", "sopa"]


@pytest.fixture(params=[*OBJECTIVES, *WITH_MODEL])
def name(request):
    return request.param


def finite(tensors):
    return all(bool(t.isfinite().all()) for t in tensors.values())


def test_all_rows_dense_equals_all_rows_task_by_task(name):
    data = make_data()
    dense = make(name, data, task_weighting=1.0)
    sampled = copy.deepcopy(dense)
    same(estimate(dense, data, data.dense()), estimate(sampled, data, data.everything()), 1e-12)
    same(state(dense), state(sampled), 1e-12)


@pytest.mark.parametrize("labels", ["no positive", "no negative", "one label", "nothing"])
def test_absent_class_gives_finite_numbers(name, labels):
    data = make_data()
    objective = make(name, data)
    sampled, dense = data.sampled([1, 3]), data.dense(torch.arange(8, 16))
    for batch, own in ((sampled, (0, slice(None))), (dense, (slice(None), 1))):
        column = torch.full_like(batch.labels[own], -1)
        column[:4] = {"no positive": 0, "no negative": 1}.get(labels, -1)
        if labels == "one label":
            column[2] = 0
        batch.labels[own] = column
        known = data.labels.clone()  # SOPA looks positives up by row, so they must be known to it
        known[batch.rows.flatten(), 1] = torch.maximum(
            known[batch.rows.flatten(), 1], torch.tensor(1, dtype=torch.int8)
        )
        if name in PER_POSITIVE and labels == "no negative":
            objective = make(name, replace(data, labels=known), randomize=False)
        before = state(objective)
        gradients = estimate(objective, data, batch)
        assert finite(gradients)
        assert all(not t.isnan().any() for t in state(objective).values())
        if labels == "nothing":  # not sampled: nothing of this task moves
            assert not gradients["weight"][1].any()
            for key, value in state(objective).items():
                if len(value) == data.num_tasks:
                    assert torch.equal(value[1], before[key][1]), key


def test_tasks_that_are_not_sampled_stay_untouched(name):
    data = make_data()
    objective = make(name, data)
    before = state(objective)
    gradients = estimate(objective, data, data.sampled([1, 4]))
    after, others, moved = state(objective), [0, 2, 3], False
    for key, value in after.items():
        if len(value) == data.num_tasks:  # state per task
            assert torch.equal(value[others], before[key][others]), key
            moved |= not torch.equal(value, before[key])
    if name in PER_POSITIVE:
        (key,) = objective.per_positive_state()
        kept = objective.get_submodule(key.removesuffix(".value"))
        others_keys = ~torch.isin(kept.keys % data.num_tasks, torch.tensor([1, 4]))
        assert torch.equal(after[key][others_keys], before[key][others_keys])
        moved = not torch.equal(after[key], before[key])
    for key in ("weight", "bias", "mean_positive", "mean_negative"):
        if key in gradients:
            assert not gradients[key][others].any(), key
            assert gradients[key][[1, 4]].any(), key
    assert moved or name in STATELESS


@pytest.mark.parametrize("name", OBJECTIVES)
def test_missing_labels_have_no_influence(name):
    data = make_data()
    objective = make(name, data).eval()
    batch = data.dense()
    scores = data.model(batch.inputs).detach().requires_grad_()
    loss = objective(scores, batch.labels, rows=batch.rows)
    loss.backward()
    missing = batch.labels == -1
    assert missing.any()
    assert not scores.grad[missing].any()
    assert scores.grad[~missing].any()
    elsewhere = torch.where(missing, scores.detach() + 3, scores.detach())
    moved = objective(elsewhere, batch.labels, rows=batch.rows).detach()
    assert float(moved) == pytest.approx(float(loss.detach()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_label_dtypes_agree(name, dtype):
    data = make_data()
    objective = make(name, data).eval()
    batch = data.sampled([0, 2])
    labels = batch.labels.to(dtype)
    if dtype.is_floating_point:
        labels[batch.labels == -1] = float("nan")
    same(estimate(objective, data, batch), estimate(objective, data, replace(batch, labels=labels)))


def test_resuming_is_bit_identical(name):
    data = make_data(dtype=torch.float32)

    def run(objective, model, optimizer, steps):
        for batch in steps:
            optimizer.zero_grad()
            objective.backward(model, batch)
            optimizer.step()

    def fresh():
        model, objective = copy.deepcopy(data.model), make(name, data, randomize=False)
        parameters = [*model.parameters(), *objective.parameters()]
        return objective, model, torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    batches = [data.sampled([0, 3]), data.dense(torch.arange(12)), data.sampled([2, 1]), data.dense()]
    straight = fresh()
    run(*straight, batches)
    first, second = fresh(), fresh()
    run(*first, batches[:2])
    for old, new in zip(first, second, strict=True):
        new.load_state_dict(copy.deepcopy(old.state_dict()))
    run(*second, batches[2:])
    same(dict(straight[1].named_parameters()), dict(second[1].named_parameters()))
    same(state(straight[0]), state(second[0]))


def test_state_dict_has_no_hidden_state(name):
    """Whatever training changes is in state_dict: loading it undoes training."""
    data = make_data()
    objective = make(name, data)
    before, batch = state(objective), data.dense()
    reference = copy.deepcopy(objective)
    estimate(objective, data, batch)
    objective.load_state_dict(before)
    same(estimate(objective, data, batch), estimate(reference, data, batch))


def test_moves_to_another_dtype(name):
    data = make_data()
    half = replace(data, inputs=data.inputs.float(), model=copy.deepcopy(data.model).float())
    objective = make(name, data)
    single = copy.deepcopy(objective).to(torch.float32)
    assert all(v.dtype == torch.float32 for v in single.state_dict().values())
    ours, theirs = estimate(objective, data, data.dense()), estimate(single, half, half.dense())
    same(theirs, {k: v.float() for k, v in ours.items()}, 1e-5)
    same(state(single), {k: v.float() for k, v in state(objective).items()}, 1e-5)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_low_precision_scores_are_computed_in_state_precision(name):
    data = make_data(dtype=torch.float32)
    objective, batch = make(name, data).eval(), data.dense()
    scores = data.model(batch.inputs).detach().bfloat16().requires_grad_()
    loss = objective(scores, batch.labels, rows=batch.rows)
    loss.backward()
    assert loss.dtype == torch.float32
    assert scores.grad.dtype == torch.bfloat16
    exact = objective(scores.detach().float(), batch.labels, rows=batch.rows)
    assert torch.equal(loss.detach(), exact)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_double_scores_are_computed_in_double_precision(name):
    data = make_data(dtype=torch.float32)
    objective, batch = make(name, data), data.dense()
    scores = data.model(batch.inputs).detach().double().requires_grad_()
    loss = objective(scores, batch.labels, rows=batch.rows)
    loss.backward()
    assert loss.dtype == scores.grad.dtype == torch.float64
    assert all(one.dtype == torch.float32 for one in objective.state_dict().values())


def test_eval_mode_leaves_state_alone(name):
    data = make_data()
    objective = make(name, data)
    before, batch = state(objective), data.dense()
    training = copy.deepcopy(objective)
    ours = estimate(objective.eval(), data, batch)
    same(state(objective), before)
    same(ours, estimate(training, data, batch))


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("power", [0.7, -0.7])
def test_task_weights(name, power):
    """The loss is the mean over tasks of (positive rate)^-g, normalized to mean one, times the task's own."""
    data = make_data()
    plain = make(name, data).eval()
    weighted = make(name, data, randomize=False, task_weighting=power).eval()
    weighted.load_state_dict(plain.state_dict())
    rate = (data.labels == 1).sum(0) / (data.labels >= 0).sum(0).double()
    omega = rate**-power
    omega = omega / omega.mean()
    batch, total = data.everything(), 0.0
    for k in range(data.num_tasks):
        own = auc.TaskBatch(
            batch.inputs[k : k + 1], batch.labels[k : k + 1], batch.tasks[k : k + 1], batch.rows[k : k + 1]
        )
        total += float(omega[k] * plain.backward(data.model, own)["loss"]) / data.num_tasks
    assert float(weighted.backward(data.model, batch)["loss"]) == pytest.approx(total, rel=1e-6)
    assert float(weighted.backward(data.model, data.dense())["loss"]) == pytest.approx(total, rel=1e-6)
    assert omega.std() > 0.05


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("absent", [0, 1])
def test_tasks_without_a_class_are_left_out(name, absent):
    """The same loss and estimate as without them, and their state never moves, even if they are sampled."""
    data = make_data()
    labels = data.labels.clone()
    labels[:, 3] = torch.where(labels[:, 3] == absent, -1, labels[:, 3])
    with pytest.warns(UserWarning, match=r"left out: 3"):
        objective = OBJECTIVES[name](labels, task_weighting=0.5).double()
    rest = [0, 1, 2, 4]
    without = OBJECTIVES[name](labels[:, rest], task_weighting=0.5).double()
    before, scores, rows = state(objective), data.model(data.inputs).detach(), torch.arange(24)
    leaf = scores.clone().requires_grad_()
    loss = objective(leaf, labels, rows=rows)
    loss.backward()
    expected = without(scores[:, rest], labels[:, rest], rows=rows).detach()
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-12)
    assert not leaf.grad[:, 3].any()
    objective(scores[:, [3]].T, labels[:, [3]].T, torch.tensor([3]), rows=rows[None])
    for key, value in state(objective).items():
        if len(value) == data.num_tasks:
            assert torch.equal(value[3], before[key][3]), key
        if key in objective.per_positive_state():
            own = objective.get_submodule(key.removesuffix(".value")).keys % data.num_tasks == 3
            assert torch.equal(value[own], before[key][own])


def test_sampled_task_importance_scales_the_estimate(name):
    data = make_data()
    objective = make(name, data).eval()
    batch = data.sampled([2])
    tripled = replace(batch, weights=torch.tensor([3.0]).double())
    once = estimate(objective, data, batch)
    same(estimate(objective, data, tripled), {k: 3 * v for k, v in once.items()}, 1e-12)


def test_backward_accumulates(name):
    data = make_data()
    objective = make(name, data).eval()
    once = estimate(objective, data, data.dense())
    objective.backward(data.model, data.dense())
    named = [*data.model.named_parameters(), *objective.named_parameters()]
    same({k: p.grad for k, p in named if p.grad is not None}, {k: 2 * v for k, v in once.items()}, 1e-12)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_own_loop_equals_backward(name):
    data = make_data()
    objective = make(name, data).eval()
    for batch in (data.dense(), data.sampled([0, 4])):
        theirs = estimate(objective, data, batch)
        data.model.zero_grad()
        objective.zero_grad()
        tasks = getattr(batch, "tasks", None)
        scores = data.model(batch.inputs) if tasks is None else data.model.task_scores(batch.inputs, tasks)
        (2 * objective(scores, batch.labels, tasks, rows=batch.rows)).backward()
        named = [*data.model.named_parameters(), *objective.named_parameters()]
        same({k: p.grad / 2 for k, p in named if p.grad is not None}, theirs, 1e-12)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_second_derivatives_are_right_or_refused(name):
    """The gradient may be differentiated by a weight of the loss, as in meta-learning; not by scores."""
    data = make_data()
    objective = make(name, data).eval()
    batch, weight = data.dense(), torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    parameters = list(data.model.parameters())
    loss = objective(data.model(batch.inputs), batch.labels, rows=batch.rows)
    first = torch.autograd.grad(weight * loss, parameters, create_graph=True)
    (by_weight,) = torch.autograd.grad(first[0].sum(), weight, retain_graph=True)
    torch.testing.assert_close(by_weight * weight, first[0].sum())
    if type(objective).loss is auc.Objective.loss:  # derivatives in closed form
        with pytest.raises(RuntimeError, match="only once"):
            first[0].sum().backward()


def test_any_module_with_one_output_per_task_will_do(name):
    data = make_data()
    objective = make(name, data).eval()
    batch = data.sampled([3, 1])

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = data.model

        def forward(self, inputs):
            return self.inner(inputs)

    ours = estimate(objective, data, batch)
    data.model.zero_grad()
    objective.zero_grad()
    objective.backward(Plain(), batch)
    theirs = {k: p.grad for k, p in data.model.named_parameters()}
    same(theirs, {k: ours[k] for k in theirs}, 1e-12)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_one_task_takes_plain_vectors(name):
    data = make_data(tasks=1)
    objective = make(name, data).eval()
    scores = data.model(data.inputs).detach()
    rows = torch.arange(len(scores))
    flat = objective(scores[:, 0], data.labels[:, 0], rows=rows)
    assert torch.equal(flat, objective(scores, data.labels, rows=rows))


def test_returns_numbers_without_graph(name):
    data = make_data()
    numbers = make(name, data).backward(data.model, data.dense())
    assert "loss" in numbers
    for value in numbers.values():
        assert value.shape == ()
        assert not value.requires_grad
        assert bool(value.isfinite())


def mean_over_batches(objective, data, size):
    """Mean estimate and mean new state over ALL batches of `size` rows, each equally likely."""
    start, gradients, states = state(objective), [], []
    for rows in combinations(range(len(data.inputs)), size):
        objective.load_state_dict(start)
        gradients.append(estimate(objective, data, data.dense(torch.tensor(rows))))
        states.append(state(objective))
    objective.load_state_dict(start)
    return [{k: torch.stack([d[k] for d in many]).mean(0) for k in many[0]} for many in (gradients, states)]


@pytest.mark.parametrize("name", LINEAR)
def test_dense_estimate_is_unbiased(name):
    data = make_data(seed=1, rows=8, tasks=3)
    objective = make(name, data)
    if name.startswith("minmax"):
        objective.dual += 5  # away from the bound, where projection makes the new dual nonlinear
    mean, new = mean_over_batches(objective, data, 3)
    same(estimate(objective, data, data.dense()), mean, 1e-12)
    linear = {key: value for key, value in state(objective).items() if "operating_points" not in key}
    same(linear, {key: new[key] for key in linear}, 1e-12)


@pytest.mark.parametrize("name", BILINEAR)
def test_dense_pairs_are_unbiased_up_to_a_known_factor(name):
    data = make_data(seed=1, rows=8, tasks=3)
    objective = make(name, data)
    objective.shift_pull = 0.0  # which pairs an entry with itself
    mean, _ = mean_over_batches(objective, data, 3)
    factor = 8 / 3 * 2 / 7  # chance of a pair, over the product of the chances of its two entries
    full = estimate(objective, data, data.dense())
    same({k: v * factor for k, v in full.items()}, mean, 1e-12)


@pytest.mark.parametrize("name", LINEAR)
def test_importance_weights_keep_the_dense_estimate_unbiased(name):
    """Rows drawn with unequal chances, weighted by one over (rows x chance): exact over all single draws."""
    data = make_data(seed=2, rows=9, tasks=3)
    objective = make(name, data).eval()
    chance = 0.5 + data.rand(9)
    chance /= chance.sum()
    total = None
    for row in range(9):
        weight = 1 / (9 * chance[row : row + 1])
        one = estimate(objective, data, data.dense(torch.tensor([row]), weight))
        total = {k: chance[row] * v + (0 if total is None else total[k]) for k, v in one.items()}
    same(estimate(objective, data, data.dense()), total, 1e-12)


BAD = {
    "shapes differ": (lambda d, b: replace(b, labels=b.labels[:, :3]), ValueError, "same shape"),
    "label two": (lambda d, b: replace(b, labels=b.labels + 1), ValueError, r"0, 1 or missing.*got 2"),
    "soft label": (lambda d, b: replace(b, labels=b.labels.double() * 0.5), ValueError, "0, 1 or missing"),
    "unknown task": (lambda d, b: replace(b, tasks=b.tasks + 3), (ValueError, IndexError), "task|range"),
    "negative task": (lambda d, b: replace(b, tasks=b.tasks - 3), (ValueError, IndexError), "task|range"),
    "repeated task": (lambda d, b: replace(b, tasks=b.tasks * 0), ValueError, "once"),
    "tasks as floats": (
        lambda d, b: replace(b, tasks=b.tasks.double()),
        (TypeError, RuntimeError),
        "int64|Int",
    ),
    "weights of another shape": (
        lambda d, b: replace(b, weights=torch.ones(7)),
        ValueError,
        "weights",
    ),
    "rows of another shape": (lambda d, b: replace(b, rows=b.rows[:1]), ValueError, "rows"),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_input_is_refused_and_changes_nothing(name, bad):
    data = make_data()
    objective = make(name, data)
    before = state(objective)
    change, error, message = BAD[bad]
    with pytest.raises(error, match=message):
        objective.backward(data.model, change(data, data.sampled([1, 4])))
    same(state(objective), before)
    assert all(p.grad is None for p in objective.parameters())


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("plain", [False, True])
def test_model_with_other_heads_is_refused(name, plain):
    data = make_data()
    objective = make(name, data)
    before = state(objective)
    inner = mlp(4, [], 7).double()
    model = nn.Sequential(inner) if plain else inner
    with pytest.raises(ValueError, match=r"7.*5 tasks"):
        objective.backward(model, data.sampled([1, 4]))
    with pytest.raises(ValueError, match=r"same shape|7.*5 tasks"):
        objective.backward(model, data.dense())
    same(state(objective), before)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_scores_must_be_floating_point_and_batches_not_empty(name):
    data = make_data()
    objective = make(name, data)
    with pytest.raises(TypeError, match="floating point"):
        objective(data.labels.long(), data.labels)
    with pytest.raises(ValueError, match="empty"):
        objective(data.inputs.new_zeros(0, 5), data.labels[:0])


@pytest.mark.parametrize("name", PER_POSITIVE)
def test_rows_are_needed_and_must_match(name):
    data = make_data()
    objective = make(name, data)
    before = state(objective)
    with pytest.raises(ValueError, match="rows is missing"):
        objective.backward(data.model, replace(data.dense(), rows=None))
    with pytest.raises(ValueError, match="positive for task"):
        objective.backward(data.model, replace(data.dense(), rows=torch.arange(24).flip(0)))
    same(state(objective), before)


@pytest.mark.parametrize("name", MARGIN)
def test_margin_is_honored(name):
    data = make_data()
    losses = []
    for margin in (0.3, 2.5):
        objective = make(name, data).eval()
        objective.margin = margin
        losses.append(float(objective.backward(data.model, data.dense())["loss"]))
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize("task_weighting", [-1.1, 1.1])
def test_task_weighting_outside_its_range_is_refused(name, task_weighting):
    with pytest.raises(ValueError, match=r"task_weighting.*\[-1, 1\]"):
        make(name, make_data(), task_weighting=task_weighting)


CAPTURED = [n for n in OBJECTIVES if not n.startswith(("sum", "minibatch", "focal"))]


@pytest.mark.parametrize(("name", "kind"), list(zip(CAPTURED, cycle(["dense", "sampled"]), strict=False)))
def test_captured_whole(name, kind):
    """No host synchronization and no data-dependent shape: the whole objective is one graph."""
    torch.compiler.reset()
    data = make_data()
    objective = make(name, data)
    objective.reserve(100)
    compiled = copy.deepcopy(objective)
    batch = data.dense() if kind == "dense" else data.sampled([0, 3])
    tasks = getattr(batch, "tasks", None)
    shape = batch.labels.shape
    scores = data.rand(*shape)

    def run(target, call):
        leaf = scores.clone().requires_grad_()
        loss = call(leaf, batch.labels, tasks, rows=batch.rows)
        loss.backward()
        return {"loss": loss.detach(), "grad": leaf.grad, **state(target)}

    # with the partitioner that computes things again in the backward pass: by then the state has moved
    whole = torch.compile(compiled, backend="aot_eager_decomp_partition", fullgraph=True)
    same(run(compiled, whole), run(objective, objective), 1e-12)


@pytest.fixture
def data():
    return make_data()


# -- What the trainer, the estimator, capture, sharding, reports and logs ask of an objective ----------------


def test_rates_of_block_variables_are_set_by_name(name, data):
    objective = make(name, data)
    rates = objective.block_rates()
    assert all(isinstance(rate, float) and rate > 0 for rate in rates.values())
    objective.set_block_rates({key: rate / 2 for key, rate in rates.items()})
    assert objective.block_rates() == pytest.approx({key: rate / 2 for key, rate in rates.items()})


def test_rates_held_in_tensors_are_set_in_place_and_do_the_same(name, data):
    plain = make(name, data)
    held = copy.deepcopy(plain)
    held.hold_block_rates()
    halved = {key: rate / 2 for key, rate in plain.block_rates().items()}
    paths = [key.rpartition(".") for key in halved]
    places = [getattr(held.get_submodule(prefix), own) for prefix, _, own in paths]
    for objective in (plain, held):
        objective.set_block_rates(halved)
    assert [place.item() for place in places] == pytest.approx([*halved.values()])
    same(estimate(held, data, data.dense()), estimate(plain, data, data.dense()), 1e-12)
    same(state(held), state(plain), 1e-12)


def test_block_variables_with_rates_of_zero_stay(name, data):
    objective = make(name, data)
    rates = objective.block_rates()
    if not rates or name in PER_POSITIVE:
        pytest.skip("has no step size of a block variable per task")
    averages = ("hessian", "size", "operating_points.state", "rate")
    before = {key: value for key, value in state(objective).items() if not key.endswith(averages)}
    objective.set_block_rates(dict.fromkeys(rates, 0.0))
    estimate(objective, data, data.dense())
    assert all(torch.equal(state(objective)[key], value) for key, value in before.items())


def test_class_counts_can_be_set_instead_of_labels(name, data):
    if name in PER_POSITIVE:
        pytest.skip("keeps a variable per positive of the labels")
    objective = make(name, data, task_weighting=0.5)
    counts = [(data.labels == value).sum(0).double() for value in (1, 0)]
    nothing = auc.Labels.of_counts(*(torch.zeros_like(count) for count in counts), num_rows=0)
    later = OBJECTIVES[name](nothing, task_weighting=0.5).double()
    later.set_class_counts(*counts, num_rows=len(data.labels))
    later.load_state_dict(objective.state_dict())
    for batch in (data.dense(), data.everything()):
        same(estimate(later.eval(), data, batch), estimate(objective.eval(), data, batch), 1e-6)


def test_a_warm_start_keeps_state_finite_and_is_repeatable(name, data):
    objective, scores = make(name, data), data.model(data.inputs).detach()
    objective.start_at(data.model)
    for _ in range(2):
        objective.warm_start(scores, data.labels)
        found = {key: value.clone() for key, value in state(objective).items()}
    objective.warm_start(scores, data.labels)
    assert all(torch.equal(state(objective)[key], value) for key, value in found.items())
    objective.start_at(data.model)
    objective.prefetch(torch.tensor([0, 1]))
    assert all(torch.equal(state(objective)[key], value) for key, value in found.items())


def test_thresholds_and_their_report_come_together(name, data):
    objective, scores = make(name, data), data.model(data.inputs).detach()
    report = objective.threshold_report(scores, data.labels)
    assert (report is None) == (objective.thresholds() is None) == (not objective.tracks_thresholds)
    if report is None:
        return
    objective.warm_start(scores, data.labels)
    report = objective.threshold_report(scores, data.labels)
    assert report.tracked.isfinite().sum() > 0  # five tasks with few negatives
    torch.testing.assert_close(report.tracked, objective.thresholds().float(), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(report.quantile, objective.thresholds(scores, data.labels).float())
    negative = data.labels == 0
    above = ((scores > objective.thresholds()) & negative).sum(0) / negative.sum(0)
    above = above.where(report.tracked.isfinite(), torch.nan)
    torch.testing.assert_close(report.rate, above.float(), equal_nan=True)


def test_all_tasks_are_those_of_one_process(name, data):
    objective = make(name, data)
    assert objective.own_tasks == slice(0, data.num_tasks)
    batch = data.dense()
    assert objective.share(batch) is batch
    assert objective.input_rows(7) == slice(0, 7)
    values = torch.arange(float(data.num_tasks))
    assert objective.gather_tasks(values) is values
    objective.average_running_statistics(data.model)
    estimate(objective, data, batch)
    gradients = [p.grad for p in (*data.model.parameters(), *objective.parameters()) if p.grad is not None]
    expected = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    torch.testing.assert_close(objective.gradient_norm(data.model), expected)


def test_state_has_a_row_per_task_or_per_positive(name, data):
    objective = make(name, data)
    per_positive = objective.per_positive_state()
    for key, value in objective.state_dict().items():
        expected = int((data.labels == 1).sum()) if key in per_positive else data.num_tasks
        assert len(value) == expected or key in objective.shared_state(), key
    assert objective.memory_bytes() == sum(v.numel() * v.element_size() for v in state(objective).values())
    assert objective.memory_note() is None
    type(objective).check_memory(data.model, {})


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_step_may_be_captured(name, data):
    assert type(make(name, data)).capture_problem({}) is None


def test_room_for_positives_changes_nothing_while_it_suffices(name, data):
    batch = data.dense()
    free = make(name, data)
    reserved = copy.deepcopy(free)
    reserved.reserve(int((batch.labels == 1).sum()) + 7)
    expected, found = (estimate(objective, data, batch) for objective in (free, reserved))
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value)


def test_an_optimizer_without_the_objectives_parameters_gets_a_warning_in_its_first_step(name, data):
    objective = make(name, data)
    optimizer = torch.optim.SGD(data.model.parameters(), lr=0.1)
    objective.backward(data.model, data.dense())
    if not list(objective.parameters()):
        optimizer.step()
        return
    with pytest.warns(UserWarning, match=r"objective\.parameters"):
        optimizer.step()
    optimizer.step()  # once is enough


def test_optimizers_that_have_the_objectives_parameters_get_no_warning(name, data):
    together, apart = make(name, data), make(name, data)
    own = list(apart.parameters())
    optimizers = [torch.optim.SGD([*data.model.parameters(), *together.parameters()], lr=0.1)]
    optimizers += [torch.optim.SGD(group, lr=0.1) for group in (data.model.parameters(), own) if group]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for objective, chosen in ((together, optimizers[:1]), (apart, optimizers[1:])):
            objective.backward(data.model, data.dense())
            for optimizer in chosen:
                optimizer.step()
