"""What every variance reduction must do, with every hypergradient."""

import copy
from functools import partial

import pytest
import torch

import mmb
from hypergradients.test_conformance import ESTIMATORS, Case, everything, run, started
from quadratics import Quadratic

NOISY = {  # with step sizes that SAGA bears
    "exact": ESTIMATORS["exact"],  # the first three solve on the batch
    "conjugate_gradient": ESTIMATORS["conjugate_gradient"],
    "neumann": Case(lambda: mmb.Neumann(terms=10, smoothness=3.3, randomize=False)),
    "quadratic_sgd": Case(lambda: mmb.QuadraticSGD(lr=0.15)),
    "first_order_central": Case(lambda: mmb.FirstOrder(penalty=1e3, lr=0.15, order=2)),
}
REDUCTIONS = {"storm": lambda: mmb.Storm(beta=0.2), "saga": mmb.Saga}


@pytest.fixture(params=REDUCTIONS)
def reduction(request):
    return REDUCTIONS[request.param]


def solver_for(quadratic, case, **options):
    settings = {"lr": 0.05, "lr_dual": 0.5, "lr_lower": 0.5, "beta": 0.5} | options
    return mmb.Solver(quadratic.problem(), case.make(), **settings)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_all_blocks_without_noise_move_as_without_reduction(name, reduction):
    """Corrections cancel if every batch is the whole of its block, whatever the estimator."""
    case = ESTIMATORS[name]
    quadratic = Quadratic.make(identity=case.identity)
    plain = solver_for(quadratic, case)
    reduced = solver_for(quadratic, case, variance_reduction=reduction())
    states = [started(solver, quadratic) for solver in (plain, reduced)]
    for solver, state in zip((plain, reduced), states, strict=True):
        run(solver, state, quadratic, 20, blocks_per_step=6)
    for one, two in zip(*map(everything, states), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["momentum_hessian", "quadratic_sgd", "first_order"])
def test_blocks_that_are_not_sampled_count(name, reduction):
    """With x at rest the estimate of two sampled blocks is the gradient of all six."""
    case = ESTIMATORS[name]
    quadratic = Quadratic.make()
    solver = solver_for(quadratic, case, lr=lambda step: 0.0, variance_reduction=reduction())
    state = started(solver, quadratic)
    info = run(solver, state, quadratic, 120, blocks_per_step=2).info
    expected = quadratic.gradient(state.x)
    assert (info.estimate - expected).norm() <= 1e-3 * expected.norm()


def noisy(quadratic, blocks, numbers):
    """One of four batches of every block, which differ in all that the hypergradient depends on."""
    shift = (numbers - 1.5).to(quadratic.A.dtype)[:, None]
    upper, lower = quadratic.batches(blocks)
    lower["A"] = lower["A"] * (1 + 0.4 * shift[:, :, None])
    lower["B"] = lower["B"] * (1 + 0.1 * shift[:, :, None])
    return upper | {"t": upper["t"] + shift}, lower


@pytest.mark.parametrize("name", NOISY)
@pytest.mark.parametrize("kind", ["storm", "saga"])
def test_estimates_have_less_noise_at_rest(name, kind):
    quadratic = Quadratic.make(blocks=2)
    blocks, spread, still = torch.arange(2), [], {"lr": lambda step: 0.0, "lr_dual": 0.2, "lr_lower": 0.15}
    for reduction in (None, mmb.Storm(beta=0.05) if kind == "storm" else mmb.Saga(4, 4)):
        generator = torch.Generator().manual_seed(0)
        solver = solver_for(quadratic, NOISY[name], **still, variance_reduction=reduction)
        state, estimates = started(solver, quadratic), []
        for _ in range(60):
            numbers = torch.randint(4, (2,), generator=generator)
            samples = (numbers, numbers) if kind == "saga" and reduction else None
            info = solver.step(state, blocks, *noisy(quadratic, blocks, numbers), samples=samples)
            estimates.append(info.estimate)
        spread.append(torch.stack(estimates[40:]).std(0).norm())
    assert spread[1] < 0.5 * spread[0]


def test_unsampled_blocks_stay_bit_identical(reduction):
    quadratic = Quadratic.make()
    solver = solver_for(quadratic, ESTIMATORS["quadratic_sgd"], variance_reduction=reduction())
    state = started(solver, quadratic)
    run(solver, state, quadratic, 3)
    before = copy.deepcopy(state)
    blocks = torch.tensor([5, 0])
    solver.step(state, blocks, *quadratic.batches(blocks))
    untouched = torch.tensor([1, 2, 3, 4])
    memories = (state.shared["reduction"]["blocks"], before.shared["reduction"]["blocks"])
    for new, old in zip(*map(mmb.trees.tree_leaves, memories), strict=True):
        assert torch.equal(old[untouched], new[untouched])


def test_save_and_resume_is_bit_identical(reduction):
    quadratic = Quadratic.make()
    solver = solver_for(quadratic, ESTIMATORS["momentum_hessian"], variance_reduction=reduction())
    state = started(solver, quadratic)
    run(solver, state, quadratic, 7)
    resumed = started(solver, quadratic)
    resumed.load_state_dict(state.state_dict())
    for one in (state, resumed):
        run(solver, one, quadratic, 7, seed=3)
    for left, right in zip(everything(state), everything(resumed), strict=True):
        assert torch.equal(left, right)


def test_compiled_steps_equal_eager_ones(reduction, monkeypatch):
    """All that a step does is traced; the code made from it is tested without reduction, in `test_solver`."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    quadratic = Quadratic.make()
    states = []
    for compiled in (False, True):
        solver = solver_for(
            quadratic, ESTIMATORS["quadratic_sgd"], variance_reduction=reduction(), compile=compiled
        )
        states.append(started(solver, quadratic))
        run(solver, states[-1], quadratic, 4)
    for one, two in zip(*map(everything, states), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", ["tensor", "dict"])
def test_min_max_problems_without_lower_level(reduction, kind):
    """min_x max_a of a (x - c_i) - a^2 / 2: x tends to the mean of the c_i, from one block at a time."""
    places = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
    pick = (lambda x: x["only"]) if kind == "dict" else (lambda x: x)
    problem = mmb.Problem(lambda x, a, y, c: a * (pick(x) - c) - a**2 / 2, None, 3)
    solver = mmb.Solver(problem, lr=0.1, lr_dual=0.9, variance_reduction=reduction())
    start = torch.zeros((), dtype=torch.float64)
    x0 = {"only": start} if kind == "dict" else start
    state = solver.init(x0, dual=torch.zeros(3, dtype=torch.float64))
    sampler = mmb.BlockSampler(3, 1)
    mmb.solve(solver, state, sampler=sampler, batches=lambda blocks: (places[blocks], None), steps=200)
    torch.testing.assert_close(pick(state.x), places.mean(), atol=1e-6, rtol=0)


def test_a_plain_finite_sum(reduction):
    """Neither duals nor lower variables: with one batch per block, single blocks lead to the mean."""
    places = torch.tensor([[1.0, 2.0], [2.0, 0.0], [6.0, 1.0]], dtype=torch.float64)
    problem = mmb.Problem(lambda x, a, y, c: 0.5 * (x - c).square().sum(), None, 3)
    solver = mmb.Solver(problem, lr=0.1, variance_reduction=reduction())
    state = solver.init(torch.zeros(2, dtype=torch.float64))
    draws = mmb.BlockSampler(3, 1)
    mmb.solve(solver, state, sampler=draws, batches=lambda blocks: (places[blocks], None), steps=250)
    torch.testing.assert_close(state.x, places.mean(0), atol=1e-5, rtol=0)
