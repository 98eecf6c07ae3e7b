"""Ten defects of an established AUC library, each reproduced there, none of them here."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path

import pytest
import torch

import mmb
from mmb import auc
from objective_bank import MARGIN, OBJECTIVES, STATELESS, WITH_MODEL, estimate, make, make_data, state

ROOT = Path(mmb.__file__).parents[2]
WITH_DUAL = [name for name in OBJECTIVES if name.startswith(("minmax", "partial"))]


def test_1_a_cross_entropy_step_after_an_auc_step_is_a_cross_entropy_step():
    """There the dual's gradient is never cleared, so every later step takes the AUC branch."""
    data = make_data()
    entropy, margin = auc.CrossEntropy(data.labels).double(), make("minmax", data)
    clean = estimate(entropy, data, data.dense())
    estimate(margin, data, data.dense())
    assert margin.dual.grad is None  # the dual is state, not something an optimizer or a branch can look at
    after = estimate(entropy, data, data.dense())
    assert all(torch.equal(clean[key], after[key]) for key in clean)


def test_2_the_cross_term_is_the_pair_loss():
    """There a parenthesis is misplaced. At the optimal means and dual, ours is the mean over all pairs."""
    data = make_data()
    objective = auc.MinMaxAUC(data.labels, margin=0.6).double()
    scores = data.model(data.inputs).detach()
    objective.warm_start(scores, data.labels)
    h, pairs = torch.sigmoid(scores), []
    for k in range(data.num_tasks):
        up, down = h[data.labels[:, k] == 1, k], h[data.labels[:, k] == 0, k]
        assert float(0.6 + down.mean() - up.mean()) > 0  # where the projection of the dual does nothing
        pairs.append(((0.6 - up[:, None] + down) ** 2).mean())
    value = objective.eval()(scores, data.labels).detach()
    assert float(value) == pytest.approx(float(torch.stack(pairs).mean()), rel=1e-10)


@pytest.mark.parametrize("name", MARGIN)
def test_3_the_margin_argument_is_used(name):
    data = make_data()
    kind = type(OBJECTIVES[name](data.labels))
    one, two = (kind(data.labels, margin=margin).double() for margin in (0.5, 1.5))
    assert not torch.allclose(
        estimate(one, data, data.dense())["weight"], estimate(two, data, data.dense())["weight"]
    )


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_4_no_nan_without_positives_or_negatives(name, missing):
    data = make_data()
    objective = make(name, data)
    labels = data.labels.clone()
    labels[labels[:, 2] == missing, 2] = -1
    scores = data.model(data.inputs).detach().requires_grad_()
    loss = objective(scores, labels, rows=torch.arange(len(labels)))
    loss.backward()
    assert loss.isfinite()
    assert scores.grad.isfinite().all()
    assert not any(value.isnan().any() for value in state(objective).values())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_5_tasks_that_are_not_sampled_do_not_move(name):
    """Dual, thresholds, means and heads: after a real optimizer step, bit-identical."""
    data = make_data()
    objective = make(name, data)
    model = copy.deepcopy(data.model)
    optimizer = torch.optim.SGD([*model.parameters(), *objective.parameters()], lr=0.1)
    before = {
        **state(objective),
        "weight": model.weight.detach().clone(),
        "bias": model.bias.detach().clone(),
    }
    optimizer.zero_grad()
    objective.backward(model, data.sampled([1, 4]))
    optimizer.step()
    after = {**state(objective), "weight": model.weight, "bias": model.bias}
    for key, value in after.items():
        if len(value) == data.num_tasks:
            assert torch.equal(value[[0, 2, 3]], before[key][[0, 2, 3]]), key
    assert not torch.equal(model.weight[[1, 4]], before["weight"][[1, 4]])


@pytest.mark.parametrize("name", WITH_DUAL)
def test_6_the_dual_steps_along_the_derivative_of_the_reported_loss(name):
    data = make_data()
    objective = make(name, data)
    batch, k, step = data.everything(), 2, 1e-4
    start = objective.dual.clone()
    losses = []
    for sign in (1, -1):
        probe = copy.deepcopy(objective).eval()
        probe.dual[k] += sign * step
        losses.append(float(probe.backward(data.model, batch)["loss"]))
    slope = (losses[0] - losses[1]) / (2 * step) * data.num_tasks / float(objective.task_weight[k])
    objective.backward(data.model, batch)
    assert float(objective.dual[k] - start[k]) == pytest.approx(objective.lr_dual * slope, rel=1e-6)


def test_7_samplers_take_gaps_and_tasks_without_positives_and_leave_global_seeds_alone():
    labels = torch.tensor([[1.0, float("nan"), 0.0], [0.0, 1.0, 0.0], [float("nan"), 0.0, 0.0]])
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    with pytest.warns(UserWarning, match="left out: 2$"):
        sampler = auc.TaskSampler(labels, tasks_per_step=2, rows_per_task=2, generator=3)
    draw = next(iter(sampler))
    assert sorted(draw.tasks.tolist()) == [0, 1]
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("name", [n for n in OBJECTIVES if n not in STATELESS])
def test_8_block_state_is_in_the_state_dict(name):
    data = make_data()
    trained = make(name, data)
    estimate(trained, data, data.dense())
    resumed = make(name, data, randomize=False)
    resumed.load_state_dict(trained.state_dict())
    batch = data.sampled([0, 3])
    ours, theirs = estimate(trained, data, batch), estimate(resumed, data, batch)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert all(torch.equal(value, state(resumed)[key]) for key, value in state(trained).items())
    assert len(trained.state_dict()) > 0


def test_9_the_objectives_need_torch_alone():
    """tests/test_package.py shows that a fresh process imports nothing else with them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [d.split(">")[0] for d in project["dependencies"]] == ["torch"]


def test_10_every_objective_is_tested():
    """Each one exported is in the bank that the conformance suite is run over, or has its own tests."""
    exported = {
        name
        for name in auc.__all__
        if isinstance(getattr(auc, name), type) and issubclass(getattr(auc, name), auc.Objective)
    } - {"Objective"}
    data = make_data()
    banked = {type(make(name, data)).__name__ for name in (*OBJECTIVES, *WITH_MODEL)}
    assert exported - banked <= {
        "CompositionalAUC",
        "HeadCompositionalAUC",
        "ShardedObjective",
    }
