"""The measured error sequences against a step written out by hand."""

import functools
import math

import pytest
import torch

import mmb
from mmb.problems import BilevelQuadratic, Quadratic, RobustTasks, Saddle
from mmb.theory import ErrorSequences


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def follow(known, estimator, steps, every=1):
    solver = mmb.Solver(known.problem, estimator, lr=0.1, lr_dual=0.3, lr_lower=0.4, beta=0.5)
    state = solver.init(known.x0, dual=known.dual0, lower=known.lower0)
    errors = ErrorSequences(known, state, every)
    sampler = mmb.BlockSampler(known.problem.num_blocks, 2, seeded(1))
    mmb.solve(
        solver, state, sampler=sampler, batches=known.batches(4, seeded(2)), steps=steps, callbacks=[errors]
    )
    return state, errors


@pytest.mark.parametrize("estimator", [mmb.MomentumHessian(beta=0.5), mmb.QuadraticSGD(lr=0.4)])
def test_the_last_entry_is_the_state_that_is_left(estimator):
    known = Quadratic(5, seeded(0))
    before, _ = follow(known, estimator, 6)
    state, errors = follow(known, estimator, 7)
    last = {name: values[-1] for name, values in errors.sequences.items()}
    gradient = known.gradient(before.x)
    y = known.lower_star(state.x)
    tracked, truth = (
        (state.memory["hessian"], known.hessian_star(state.x))
        if "hessian" in state.memory
        else (state.memory["v"], known.v_star(state.x))
    )
    assert last == pytest.approx(
        {
            "gradient": float(gradient.square().sum()),
            "tracking": float((gradient - state.z).square().sum()),
            "z": float(state.z.square().sum()),
            "dual": float((state.dual - known.dual_star(state.x)).square().sum()),
            "lower": float((state.lower - y).square().sum()),
            "estimator": float((tracked - truth).square().sum()),
        }
    )
    away = torch.cat(
        [state.dual - known.dual_star(known.x_star), state.lower - known.lower_star(known.x_star)], 1
    )
    distance = ((state.x - known.x_star).square().sum() + away.square().sum(1).max()).sqrt()
    assert errors.distance >= float(distance)


def test_the_start_and_the_means():
    known = Quadratic(5, seeded(0))
    _, errors = follow(known, mmb.QuadraticSGD(lr=0.4), 6)
    assert errors.start.value_gap == pytest.approx(float(known.value(known.x0) - known.value(known.x_star)))
    assert errors.start.gradient == pytest.approx(errors.sequences["gradient"][0])
    assert errors.start.dual == pytest.approx(float((known.dual0 - known.dual_star(known.x0)).square().sum()))
    assert errors.start.estimator == pytest.approx(float(known.v_star(known.x0).square().sum()))
    values = errors.sequences["lower"]
    assert errors.means()["lower"] == pytest.approx(sum(values) / 6)
    assert errors.means(skip=4)["lower"] == pytest.approx(sum(values[4:]) / 2)


def test_measuring_less_often_gives_the_same_numbers():
    known = Quadratic(5, seeded(0))
    _, dense = follow(known, mmb.QuadraticSGD(lr=0.4), 9)
    _, sparse = follow(known, mmb.QuadraticSGD(lr=0.4), 9, every=3)
    for name, values in sparse.sequences.items():
        assert values == dense.sequences[name][::3]


@pytest.mark.parametrize(
    ("cls", "absent"), [(Saddle, {"lower", "estimator"}), (BilevelQuadratic, {"dual"}), (RobustTasks, set())]
)
def test_what_a_problem_lacks_is_not_measured(cls, absent):
    known = cls(3, seeded(0))
    _, errors = follow(known, None if cls is Saddle else mmb.QuadraticSGD(lr=0.1), 2)
    every = {"gradient", "tracking", "z", "dual", "lower", "estimator"}
    assert set(errors.sequences) == every - absent
    assert math.isnan(errors.distance) == (cls is RobustTasks)
    assert math.isnan(errors.start.value_gap) == (cls is RobustTasks)


def test_bad_arguments_are_refused():
    known = Saddle(3, seeded(0))
    solver = mmb.Solver(known.problem, optimizer=functools.partial(torch.optim.SGD, lr=0.1), lr_dual=0.1)
    with pytest.raises(ValueError, match=r"state.* z"):
        ErrorSequences(known, solver.init(known.x0, dual=known.dual0))
    solver = mmb.Solver(known.problem, lr=0.1, lr_dual=0.1)
    with pytest.raises(ValueError, match="every"):
        ErrorSequences(known, solver.init(known.x0, dual=known.dual0), every=0)
