"""What is special about single estimators."""

import copy
import math

import pytest
import torch

import mmb
from mmb.oracles import Oracles
from quadratics import Quadratic


def oracles(quadratic, blocks=None):
    blocks = torch.arange(quadratic.num_blocks) if blocks is None else blocks
    x, dual, lower = quadratic.start()
    return Oracles(quadratic.problem(), x, dual[blocks], lower[blocks], *quadratic.batches(blocks))


def test_random_neumann_series_is_the_cut_series_in_expectation():
    """The mean over every possible length equals the sum of the terms, which tends to the exact solution."""
    at = oracles(Quadratic.make(blocks=2))
    terms = 40
    drawn, summed = (mmb.Neumann(terms, 2.5, randomize=randomize) for randomize in (True, False))
    lengths = [torch.tensor([length, length]) for length in range(terms)]
    mean = torch.stack([drawn.estimate(at, {}, length, {}).grad_x for length in lengths]).mean(0)
    expected = summed.estimate(at, {}, lengths[0], {}).grad_x
    exact = mmb.Exact().estimate(at, {}, None, {}).grad_x
    torch.testing.assert_close(mean, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(expected, exact, rtol=1e-4, atol=1e-4)


def test_each_block_has_its_own_length():
    at = oracles(Quadratic.make(blocks=2))
    neumann = mmb.Neumann(5, 2.5)
    mixed = neumann.estimate(at, {}, torch.tensor([0, 4]), {}).residual
    assert mixed[0] == neumann.estimate(at, {}, torch.tensor([0, 0]), {}).residual[0]
    assert mixed[1] == neumann.estimate(at, {}, torch.tensor([4, 4]), {}).residual[1]


def test_neumann_with_an_independent_sample_per_factor():
    """With split_batch factor j uses the j-th part of the samples: the product is written out here."""
    samples = 1 + torch.rand(1, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    problem = mmb.Problem(
        upper=lambda x, a, y, batch: 2 * y,
        lower=lambda x, y, batch: 0.5 * batch.mean() * y**2 - x * y,
        num_blocks=1,
    )
    one, y = torch.tensor(0.3).double(), torch.tensor([0.1]).double()
    at = Oracles(problem, one, None, y, None, samples)
    estimate = mmb.Neumann(3, 4.0, split_batch=True).estimate(at, {}, torch.tensor([2]), {})
    v = (3 / 4) * (1 - samples[0, 1] / 4) * (1 - samples[0, 2] / 4) * 2
    torch.testing.assert_close(estimate.grad_x, v)
    with pytest.raises(ValueError, match=r"lower_batch.*terms=2.*\[3\]"):
        mmb.Neumann(2, 4.0, split_batch=True).estimate(at, {}, torch.tensor([1]), {})


def test_draws_come_from_the_state_and_survive_a_failed_step():
    quadratic = Quadratic.make()
    solver = mmb.Solver(quadratic.problem(), mmb.Neumann(8, 2.5), lr=0.01, lr_dual=0.1, lr_lower=0.1)
    x, dual, lower = quadratic.start()
    state = solver.init(x, dual=dual, lower=lower)
    before = state.generator.get_state()
    blocks = torch.tensor([0, 1])
    upper, lower_batch = quadratic.batches(blocks)
    with pytest.raises(mmb.BrokenStepError):
        solver.step(state, blocks, upper, {**lower_batch, "c": lower_batch["c"] * math.nan})
    assert torch.equal(state.generator.get_state(), before)
    solver.step(state, blocks, upper, lower_batch)
    assert not torch.equal(state.generator.get_state(), before)


def test_v_stays_in_its_ball():
    quadratic = Quadratic.make()
    solver = mmb.Solver(
        quadratic.problem(), mmb.QuadraticSGD(lr=0.5, radius=0.3), lr=0.05, lr_dual=0.5, lr_lower=0.5
    )
    x, dual, lower = quadratic.start()
    state = solver.init(x, dual=dual, lower=lower)
    mmb.solve(solver, state, sampler=mmb.BlockSampler(6, 6), batches=quadratic.batches, steps=20)
    norms = state.memory["v"].norm(dim=1)
    assert norms.max() <= 0.3 + 1e-12
    assert norms.max() > 0.29  # and the ball matters


def test_identity_residual_shows_whether_the_hessian_is_the_identity():
    for identity in (True, False):
        residual = mmb.Identity().estimate(oracles(Quadratic.make(identity=identity)), {}, None, {}).residual
        assert (residual.max() < 1e-12) == identity


def test_first_order_error_falls_with_the_penalty():
    """Bias of order 1 / penalty, measured with the penalized variable solved exactly."""
    quadratic = Quadratic.make()
    errors = []
    for penalty in (10.0, 100.0, 1000.0):
        solver = mmb.Solver(
            quadratic.problem(),
            mmb.FirstOrder(penalty=penalty, lr=0.5),
            lr=lambda step: 0.0,
            lr_dual=0.5,
            lr_lower=0.5,
        )
        x, dual, lower = quadratic.start()
        state = solver.init(x, dual=dual, lower=lower)
        info = mmb.solve(
            solver, state, sampler=mmb.BlockSampler(6, 6), batches=quadratic.batches, steps=60
        ).info
        errors.append((info.estimate - quadratic.gradient(x)).norm())
    assert 8 < errors[0] / errors[1] < 12
    assert 8 < errors[1] / errors[2] < 12


def test_first_order_never_takes_a_second_derivative(monkeypatch):
    monkeypatch.setattr(Oracles, "products", None)
    monkeypatch.setattr(Oracles, "hessian_product", None)
    monkeypatch.setattr(Oracles, "hessian", None)
    at = oracles(Quadratic.make())
    mmb.FirstOrder(penalty=10.0, lr=0.1).estimate(
        at, {"penalized": at.lower}, None, {"lr": torch.tensor(0.1)}
    )
    assert at._second is None


@pytest.mark.parametrize("order", [1, 2])
def test_first_order_bias_falls_with_its_order(order):
    """Ten times the penalty divides the error by 10, or by 100 with central differences."""
    problem = mmb.Problem(
        upper=lambda x, a, y, b: 0.5 * (y - 3) ** 2 + x * y,
        lower=lambda x, y, b: 0.5 * (y - x) ** 2 + 0.1 * y**4 + 0.2 * x * y**2,
        num_blocks=1,
    )
    x, lower = torch.tensor(0.7).double(), torch.zeros(1).double()
    estimates = {}
    for penalty in (10.0, 100.0):
        estimator = mmb.FirstOrder(penalty, lr=0.3, order=order)
        solver = mmb.Solver(problem, estimator, lr=lambda step: 0.0, lr_lower=0.3)
        state = solver.init(x, lower=lower)
        for _ in range(200):
            estimates[penalty] = solver.step(state, torch.arange(1), None, None).estimate
    at = Oracles(problem, x, None, state.lower, None, None)
    exact = mmb.Exact().estimate(at, {}, None, {}).grad_x
    ratio = (estimates[10.0] - exact) / (estimates[100.0] - exact)
    assert ratio == pytest.approx(10.0**order, rel=0.25)


def test_conjugate_gradient_is_exact_after_as_many_iterations_as_variables():
    at = oracles(Quadratic.make(dim_y=4))
    residuals = [
        mmb.ConjugateGradient(iterations=n).estimate(at, {}, None, {}).residual.max() for n in (2, 4)
    ]
    assert residuals[0] > 1e-4
    assert residuals[1] < 1e-10


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: mmb.MomentumHessian(beta=0.0), "beta"),
        (lambda: mmb.MomentumHessian(beta=1.1), "beta"),
        (lambda: mmb.MomentumHessian(initial=0.0), "initial"),
        (lambda: mmb.QuadraticSGD(lr=0.0), "lr"),
        (lambda: mmb.QuadraticSGD(lr=0.1, radius=-1.0), "radius"),
        (lambda: mmb.ConjugateGradient(iterations=0), "iterations"),
        (lambda: mmb.ConjugateGradient(tolerance=-1.0), "tolerance"),
        (lambda: mmb.Neumann(0, 1.0), "terms"),
        (lambda: mmb.Neumann(3, 0.0), "smoothness"),
        (lambda: mmb.FirstOrder(penalty=0.0, lr=0.1), "penalty"),
        (lambda: mmb.FirstOrder(penalty=1.0, lr=math.nan), "lr"),
        (lambda: mmb.QuadraticSGD("0.1"), "lr"),
        (lambda: mmb.QuadraticSGD(None), "lr"),
        (lambda: mmb.QuadraticSGD(math.inf), "lr"),
        (lambda: mmb.QuadraticSGD(0.1, radius=None), "radius"),
        (lambda: mmb.MomentumHessian(None), "beta"),
        (lambda: mmb.MomentumHessian(initial=math.inf), "initial"),
        (lambda: mmb.FirstOrder(1.0, None), "lr"),
        (lambda: mmb.FirstOrder(math.inf, 0.1), "penalty"),
        (lambda: mmb.Neumann(3, "a"), "smoothness"),
        (lambda: mmb.Neumann(3, math.inf), "smoothness"),
        (lambda: mmb.Neumann(2.5, 1.0), "terms"),
        (lambda: mmb.ConjugateGradient(2.5), "iterations"),
        (lambda: mmb.ConjugateGradient(tolerance=math.inf), "tolerance"),
    ],
)
def test_bad_parameters(make, words):
    with pytest.raises(ValueError, match=f"^{words}:"):
        make()


def scheduled(step):
    return 0.8 / (1 + step)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda rate: mmb.MomentumHessian(beta=rate), "hessian"),
        (lambda rate: mmb.QuadraticSGD(lr=rate), "v"),
        (lambda rate: mmb.FirstOrder(penalty=5.0, lr=rate), "penalized"),
    ],
)
def test_rates_may_be_schedules(make, name):
    """At every step a schedule moves the memory as the number it gives for that step does."""
    quadratic = Quadratic.make()
    rates = {"lr": 0.02, "lr_dual": 0.2, "lr_lower": 0.2}
    solver = mmb.Solver(quadratic.problem(), make(scheduled), **rates)
    x, dual, lower = quadratic.start()
    state = solver.init(x, dual=dual, lower=lower)
    blocks = torch.tensor([1, 3])
    for step in range(3):
        fixed = mmb.Solver(quadratic.problem(), make(scheduled(step)), **rates)
        expected = copy.deepcopy(state)
        old = state.memory[name].clone()
        fixed.step(expected, blocks, *quadratic.batches(blocks))
        solver.step(state, blocks, *quadratic.batches(blocks))
        assert torch.equal(state.memory[name], expected.memory[name])
        assert not torch.equal(state.memory[name], old)
