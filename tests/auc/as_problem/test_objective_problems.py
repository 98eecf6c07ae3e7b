"""The tailored path equals the general path: same estimate, same new block state, on the same batch."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call

import mmb
from mmb import auc
from mmb.auc.as_problem.objective_problems import as_blocks, as_problem
from mmb.auc.as_problem.per_positive_problems import variables
from objective_bank import OBJECTIVES, PER_POSITIVE, SUMS, estimate, make, make_data, same

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-6}
PER_TASK = [name for name in OBJECTIVES if name not in (*PER_POSITIVE, *SUMS, "new")]


def score_of(data):
    def score(model, inputs, task):
        return functional_call(data.model, model, (inputs,)).index_select(1, task.reshape(1)).squeeze(1)

    return score


def batch_of(kind, data):
    if kind == "sampled":
        return data.sampled([3, 0, 4])
    rows = torch.tensor([2, 7, 3, 0, 19, 11, 23, 1, 15, 8])
    return data.dense(rows, None if kind == "dense" else 0.5 + data.rand(len(rows)))


def tracked_state(objective, key):
    """Thresholds or Hessians of all lower problems of a task, `[m, t]`."""
    parts = [getattr(objective, name) for name in ("tracked", "tracked_positive") if hasattr(objective, name)]
    return torch.cat([getattr(part, key) for part in parts], 1)


KINDS = [("sampled", torch.float64), ("dense", torch.float64), ("dense-weighted", torch.float64)]
KINDS += [("sampled", torch.float32)]


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
@pytest.mark.parametrize("name", PER_TASK)
def test_objective_equals_solver(name, kind, dtype):
    data = make_data(dtype=dtype)
    objective = make(name, data, task_weighting=0.5)
    batch = batch_of(kind, data)
    x = {"model": {k: v.detach() for k, v in data.model.named_parameters()}}
    x |= {k: v.detach() for k, v in objective.named_parameters()}
    problem = as_problem(objective, score_of(data))
    threshold = getattr(objective, "tracked", getattr(objective, "tracked_positive", None))
    lower = hessian = None
    if threshold is not None:
        lower, hessian = (tracked_state(objective, key) for key in ("value", "hessian"))
    solver = mmb.Solver(
        problem,
        None if threshold is None else mmb.MomentumHessian(beta=threshold.beta),
        lr=1.0,
        lr_dual=getattr(objective, "lr_dual", None),
        lr_lower=None if threshold is None else threshold.lr,
    )
    before = solver.init(x, dual=getattr(objective, "dual", None), lower=lower)
    if hessian is not None:
        before.memory["hessian"] = torch.diag_embed(hessian)
    blocks, block_batch, weights = as_blocks(objective, batch)
    lower_batch = None if before.lower is None else block_batch
    info = solver.step(before, blocks, block_batch, lower_batch, weights=weights)

    ours = estimate(objective, data, batch)

    delta = dict(info.estimate)
    same(ours, {**delta.pop("model"), **delta}, TOLERANCE[dtype])
    general, new = {}, {}
    if before.dual is not None:
        general["dual"], new["dual"] = before.dual, objective.dual
    if threshold is not None:
        general |= {"value": before.lower, "hessian": before.memory["hessian"].diagonal(dim1=1, dim2=2)}
        new |= {key: tracked_state(objective, key) for key in ("value", "hessian")}
    same(new, general, TOLERANCE[dtype])
    assert float(ours["weight"].abs().max()) > 1e-4


def test_dual_of_minmax_is_projected():
    """Where the margin is more than met the dual would turn negative: it stops at zero, as the solver's."""
    data = make_data()
    objective, free = make("minmax", data), make("partial-full", data)
    objective.margin = free.margin = -3.0
    batch = data.sampled([3, 0, 4])
    solver = mmb.Solver(as_problem(objective, score_of(data)), lr=1.0, lr_dual=0.9)
    objective.lr_dual = free.lr_dual = 0.9
    x = {"model": {k: v.detach() for k, v in data.model.named_parameters()}}
    x |= {k: v.detach() for k, v in objective.named_parameters()}
    general = solver.init(x, dual=objective.dual)
    blocks, block_batch, weights = as_blocks(objective, batch)
    solver.step(general, blocks, block_batch, weights=weights)
    objective.backward(data.model, batch)
    free.backward(data.model, batch)
    assert objective.dual[blocks].tolist() == [0, 0, 0]
    assert torch.equal(objective.dual, general.dual)
    assert bool((free.dual[blocks] < 0).all())  # partial AUC's dual is not constrained


@pytest.mark.parametrize("kind", ["sampled", "dense", "dense-weighted"])
@pytest.mark.parametrize("name", ["minmax", "partial-full", "pairwise-logistic", "cross-entropy"])
def test_value_is_the_problem_value(name, kind):
    data = make_data()
    objective = make(name, data)
    blocks, block_batch, weights = as_blocks(objective, batch := batch_of(kind, data))
    x = {"model": dict(data.model.named_parameters()), **dict(objective.named_parameters())}
    upper = as_problem(objective, score_of(data)).upper
    total = 0.0
    for i in range(len(blocks)):
        dual = objective.dual[blocks[i]] if hasattr(objective, "dual") else None
        lower = objective.tracked.value[blocks[i]] if hasattr(objective, "tracked") else None
        one = upper(x, dual, lower, {k: v[i] for k, v in block_batch.items()})
        total += float((weights[i] * one).detach())
    value = float(objective.eval().backward(data.model, batch)["loss"])
    assert value == pytest.approx(total / len(blocks), abs=1e-12)


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_sopa_equals_solver(kind, dtype):
    data = make_data(dtype=dtype)
    objective = make("sopa", data, task_weighting=0.5)
    batch = batch_of(kind, data)
    level = objective.level.value.clone()
    start = level.clone()
    x = {"model": {k: v.detach() for k, v in data.model.named_parameters()}, "level": level}
    solver = mmb.Solver(as_problem(objective, score_of(data)), lr=1.0)
    blocks, block_batch, weights = as_blocks(objective, batch)
    info = solver.step(solver.init(x), blocks, block_batch, weights=weights)
    ours = estimate(objective, data, batch)
    same(ours, info.estimate["model"], TOLERANCE[dtype])
    # the variables step by their own derivative, not by their share of the estimate
    slope = info.estimate["level"][blocks] * len(blocks) / weights
    level[blocks] -= objective.lr_positive * slope
    same({"level": objective.level.value}, {"level": level}, TOLERANCE[dtype])
    objective.level.value.copy_(start)
    value = objective.backward(data.model, batch)["loss"]
    same({"loss": value}, {"loss": (weights * info.values).mean()}, TOLERANCE[dtype])


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_staco_equals_solver(kind, dtype):
    data = make_data(dtype=dtype)
    objective = make("staco", data, task_weighting=0.5)
    batch = batch_of(kind, data)
    own, dual = (part.clone() for part in objective.own.value.unbind(1))
    level = objective.level.clone()
    x = {"model": {k: v.detach() for k, v in data.model.named_parameters()}, "own": own, "level": level}
    solver = mmb.Solver(as_problem(objective, score_of(data)), lr=1.0, lr_dual=objective.lr_dual)
    blocks, block_batch, weights = as_blocks(objective, batch)
    ascended = solver.init(x, dual=dual)
    solver.step(ascended, blocks, block_batch, weights=weights)
    ours = estimate(objective, data, batch)
    same({"dual": objective.own.value[:, 1]}, {"dual": ascended.dual}, TOLERANCE[dtype])
    # the estimate is at the new duals
    info = solver.step(solver.init(x, dual=ascended.dual), blocks, block_batch, weights=weights)
    same(ours, info.estimate["model"], TOLERANCE[dtype])
    # thresholds step by their own derivatives, not by their share of the estimate
    own[blocks] -= objective.lr_positive * info.estimate["own"][blocks] * len(blocks) / weights
    same({"own": objective.own.value[:, 0]}, {"own": own}, TOLERANCE[dtype])
    share = objective.task_weight / (len(batch.labels) if kind == "sampled" else data.num_tasks)
    level -= objective.lr_level * info.estimate["level"] / share
    same({"level": objective.level}, {"level": level}, TOLERANCE[dtype])


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
@pytest.mark.parametrize("name", ["sopas", "average-precision", "average-precision-logistic", "ndcg"])
def test_compositional_objective_equals_solver(name, kind, dtype):
    """Tracked inner means are lower variables whose Hessian is one; the estimate is at the new ones."""
    data = make_data(dtype=dtype)
    objective = make(name, data, task_weighting=0.5)
    objective.shift_pull = 0.0  # which is not stated
    batch = batch_of(kind, data)

    def tracked():
        value = variables(objective).value
        return value.exp() if name == "sopas" else value.clone().reshape(len(value), -1)

    x = {"model": {k: v.detach() for k, v in data.model.named_parameters()}}
    problem = as_problem(objective, score_of(data))
    solver = mmb.Solver(problem, mmb.Identity(), lr=1.0, lr_lower=objective.beta)
    moved = solver.init(x, lower=tracked())
    blocks, block_batch, weights = as_blocks(objective, batch)
    solver.step(moved, blocks, block_batch, block_batch, weights=weights)
    ours = estimate(objective, data, batch)
    same({"u": tracked()}, {"u": moved.lower}, TOLERANCE[dtype])
    again = solver.init(x, lower=moved.lower)
    info = solver.step(again, blocks, block_batch, block_batch, weights=weights)
    same(ours, info.estimate["model"], TOLERANCE[dtype])
    assert float(ours["weight"].abs().max()) > 1e-4


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_reduced_average_precision_equals_solver(kind, dtype):
    """Its lower step is that of the solver and what the last step of the weights has changed."""
    data = make_data(dtype=dtype)
    objective = make("average-precision-reduced", data, task_weighting=0.5)
    objective.shift_pull, objective.gamma = 0.0, 0.6
    batch = batch_of(kind, data)
    named = {k: v.detach() for k, v in data.model.named_parameters()}
    parts = objective.previous.value.clone().split([v.numel() for v in named.values()])
    before = {k: part.view_as(v) for (k, v), part in zip(named.items(), parts, strict=True)}
    problem, blocks = as_problem(objective, score_of(data)), as_blocks(objective, batch)

    def solved(model, lower, rate):
        solver = mmb.Solver(problem, mmb.Identity(), lr=1.0, lr_lower=rate)
        state = solver.init({"model": model}, lower=lower.clone())
        info = solver.step(state, blocks.blocks, blocks.batch, blocks.batch, weights=blocks.weights)
        return state.lower, info.estimate["model"]

    old = objective.above.value.clone()
    average, now, there = (
        solved(model, old, rate)[0] for model, rate in ((named, objective.beta), (named, 1.0), (before, 1.0))
    )
    new = (average + 0.6 * (now - there)).clamp(min=0)
    least = objective.own_loss / (objective.positives + objective.negatives)
    new[:, 0] = torch.maximum(new[:, 0], least[objective.above.keys % data.num_tasks])
    expected = old.clone()
    expected[blocks.blocks] = new[blocks.blocks]
    ours = estimate(objective, data, batch)
    same({"u": objective.above.value}, {"u": expected}, TOLERANCE[dtype])
    same(ours, solved(named, expected, 1.0)[1], TOLERANCE[dtype])
    assert float((expected - average).abs().max()) > 1e-3


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
@pytest.mark.parametrize("name", ["ndcg-k", "ndcg-k-full"])
def test_ndcg_of_the_first_rows_equals_solver(name, kind, dtype):
    """The lower variables of a positive are its rank, and the threshold of its task."""
    data = make_data(dtype=dtype)
    objective = make(name, data, task_weighting=0.5)
    objective.shift_pull = 0.0  # which is not stated
    batch = batch_of(kind, data)
    task = objective.rank_share.keys % data.num_tasks
    threshold, hessian = objective.top.value[task, 0].clone(), objective.top.hessian[task, 0].clone()
    ours = estimate(objective, data, batch)
    x = {"model": {k: v.detach() for k, v in data.model.named_parameters()}}
    solver = mmb.Solver(
        as_problem(objective, score_of(data)), mmb.MomentumHessian(beta=objective.beta), lr=1.0, lr_lower=1.0
    )
    # the estimate is at the new ranks, and at the old thresholds
    general = solver.init(x, lower=torch.stack([objective.rank_share.value, threshold], 1))
    general.memory["hessian"] = torch.diag_embed(torch.stack([torch.ones_like(hessian), hessian], 1))
    blocks, block_batch, weights = as_blocks(objective, batch)
    info = solver.step(general, blocks, block_batch, block_batch, weights=weights)
    same(ours, info.estimate["model"], TOLERANCE[dtype])
    new = general.memory["hessian"][blocks, 1, 1]
    same({"hessian": objective.top.hessian[task[blocks], 0]}, {"hessian": new}, TOLERANCE[dtype])
    rate = objective.top.own_rates[task].clamp(min=0.025)
    moved = threshold + objective.top.lr * (general.lower[:, 1] - threshold) / rate
    same({"threshold": objective.top.value[task[blocks], 0]}, {"threshold": moved[blocks]}, TOLERANCE[dtype])


def test_unknown_objective_is_refused():
    data = make_data()
    with pytest.raises(TypeError, match="Strange"):
        as_problem(type("Strange", (auc.Objective,), {})(data.labels), score_of(data))
