"""Defaults that work untuned: every known problem, from one block to a thousand."""

import pickle

import pytest
import torch

import mmb
from mmb.problems import BilevelQuadratic, Quadratic, RobustTasks, Saddle, TopKThreshold
from mmb.theory import Decay, practical
from mmb.trees import norm

KNOWN = [Quadratic, Saddle, BilevelQuadratic, TopKThreshold, RobustTasks]


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def fall(known, blocks_per_step, steps, **changes):
    m = known.problem.num_blocks
    solver = mmb.Solver(known.problem, check_every=0, **(practical(m, blocks_per_step) | changes))
    state = solver.init(known.x0, dual=known.dual0, lower=known.lower0)
    sampler = mmb.BlockSampler(m, blocks_per_step, seeded(1))
    mmb.solve(solver, state, sampler=sampler, batches=known.batches(32, seeded(2)), steps=steps)
    return float(norm(known.gradient(known.x0)) / norm(known.gradient(state.x)))


@pytest.mark.parametrize("cls", KNOWN, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize(("m", "k", "steps"), [(10, 5, 200), (1000, 100, 300)])
def test_untuned_defaults_lower_the_gradient(cls, m, k, steps):
    # the nonconvex problem has plateaus
    assert fall(cls(m, seeded(0)), k, steps) >= (5 if cls is RobustTasks else 10)


@pytest.mark.parametrize("cls", KNOWN, ids=lambda cls: cls.__name__)
def test_with_one_block_the_gradient_falls_a_hundredfold(cls):
    goal, steps = (5, 150) if cls is RobustTasks else (100, 250)
    assert fall(cls(1, seeded(0)), 1, steps) >= goal


def test_the_other_algorithm_can_be_put_in():
    assert fall(Quadratic(10, seeded(0)), 5, 250, hypergradient=mmb.MomentumHessian(beta=0.2)) >= 10


def test_rates_scale_with_the_share_of_blocks_and_with_curvature():
    few, all_blocks = practical(100, 5), practical(100, 100)
    assert few["lr"](0) == pytest.approx(0.05 * all_blocks["lr"](0))
    assert few["lr_dual"](0) == all_blocks["lr_dual"](0)
    assert few["lr_dual"](20 * 100) == pytest.approx(all_blocks["lr_dual"](5 * 20))  # after as many visits
    stiff = practical(100, 5, smoothness_upper=4.0, smoothness_lower=10.0)
    assert stiff["lr"](7) == pytest.approx(few["lr"](7) / 4)
    assert stiff["lr_dual"](7) == pytest.approx(few["lr_dual"](7) / 4)
    assert stiff["lr_lower"](7) == pytest.approx(few["lr_lower"](7) / 10)
    assert stiff["hypergradient"].lr == pytest.approx(few["hypergradient"].lr / 10)


def test_decay_and_its_pickle():
    decay = Decay(2.0, 10.0, 0.5)
    assert decay(0) == 2.0
    assert decay(30) == pytest.approx(1.0)
    assert Decay(2.0, 10.0, 0.0)(10**6) == 2.0
    assert pickle.loads(pickle.dumps(decay)) == decay


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="blocks_per_step"):
        practical(10, 11)
    with pytest.raises(ValueError, match="smoothness_lower"):
        practical(10, 5, smoothness_lower=0.0)
    with pytest.raises(ValueError, match=r"smoothness_upper.*finite.*inf"):
        practical(10, 5, smoothness_upper=float("inf"))


@pytest.mark.parametrize(
    ("numbers", "name"),
    [
        ((0.1, 0, 0.5), "scale"),
        ((0.1, -3, 0.5), "scale"),
        ((-0.1, 10, 0.5), "initial"),
        ((0.1, 10, -0.5), "power"),
        ((0.1, 10, float("nan")), "power"),
    ],
)
def test_bad_decays_are_refused(numbers, name):
    with pytest.raises(ValueError, match=f"^{name}:"):
        Decay(*numbers)
