"""A solver that nobody has to tune: it finds what is known, converges, and goes back instead of diverging."""

import copy

import pytest
import torch

import mmb
from mmb.automatic import AdaptiveSolver
from mmb.problems import BilevelQuadratic, Quadratic, RobustTasks, Saddle, TopKThreshold
from mmb.trees import norm

PROBLEMS = {
    "quadratic": (Quadratic, {}, 20, 5),
    "noise": (Quadratic, {"noise": 5.0}, 20, 5),
    "ill-conditioned": (Quadratic, {"condition": 100.0}, 5, 5),
    "float32": (Quadratic, {"dtype": torch.float32}, 20, 5),
    "steep": (Quadratic, {"curvature": 30.0, "sensitivity": 2.0}, 20, 5),
    "saddle": (Saddle, {}, 20, 5),
    "one block": (BilevelQuadratic, {}, 1, 1),
    "many lower variables": (BilevelQuadratic, {"d_lower": 40}, 10, 5),
    "thresholds": (TopKThreshold, {}, 30, 6),
    "nonconvex": (RobustTasks, {}, 10, 5),
}


def made(kind, options, blocks):
    return kind(blocks, torch.Generator().manual_seed(0), **options)


def automatic(known, sampled, seed=1, **options):
    batches = known.batches(16, torch.Generator().manual_seed(seed))
    arguments = {"batches": batches, "blocks_per_step": sampled, "print": None} | options
    solver, state = mmb.auto(known.problem, known.x0, dual=known.dual0, lower=known.lower0, **arguments)
    return solver, state, batches


@pytest.mark.parametrize("name", PROBLEMS)
def test_gradients_fall_untuned(name):
    kind, options, blocks, sampled = PROBLEMS[name]
    known = made(kind, options, blocks)
    solver, state, batches = automatic(known, sampled)
    start = norm(known.gradient(state.x))
    mmb.solve(solver, state, sampler=mmb.BlockSampler(blocks, sampled, 1), batches=batches, steps=250)
    assert norm(known.gradient(state.x)) < 0.3 * start


def test_findings_are_those_of_the_problem():
    known = made(
        Quadratic, {"mu_f": 2.0, "mu_g": 0.5, "condition": 4.0, "noise": 0.0, "hessian_noise": 0.0}, 6
    )
    found = automatic(known, 6)[0].findings
    assert found.lower_smoothness == pytest.approx(2.0)
    assert found.lower_convexity == pytest.approx(0.5)
    assert found.dual_smoothness == pytest.approx(2.0, rel=1e-3)
    assert found.gradient == pytest.approx(float(norm(known.gradient(known.x0))), rel=1e-3)
    assert found.noise == pytest.approx(0, abs=1e-6)
    largest = float(torch.linalg.eigvalsh(known.second_derivative).max())
    assert found.smoothness == pytest.approx(largest, rel=0.1)
    direct = known._upper["curvature"].mean(0)
    indirect = float(torch.linalg.eigvalsh(known.second_derivative - direct).max())
    assert found.indirect == pytest.approx(indirect, rel=0.1)


def test_the_estimator_fits_the_size_of_the_lower_problem():
    kinds = {5: mmb.MomentumHessian, 40: mmb.QuadraticSGD}
    for size, kind in kinds.items():
        known = made(BilevelQuadratic, {"d_lower": size}, 4)
        assert isinstance(automatic(known, 2)[0].hypergradient, kind)
    assert automatic(made(Saddle, {}, 4), 2)[0].hypergradient is None


def chain(blocks, sampled, *, start=0.0, lower=0.0, steps=60, **options):
    """F = mean (x - target_i)^2 / 2, all of it through the lower variables y_i(x) = x; its solver and run."""
    problem = mmb.Problem(lambda x, a, y, b: 0.5 * (y - b) ** 2, lambda x, y, b: 0.5 * (y - x) ** 2, blocks)
    targets = 1 + 0.1 * torch.sin(torch.arange(blocks))
    batches = lambda chosen: (targets[chosen], torch.zeros(len(chosen)))  # noqa: E731
    arguments = {"batches": batches, "blocks_per_step": sampled, "print": None} | options
    solver, state = mmb.auto(problem, torch.tensor(start), lower=torch.full((blocks,), lower), **arguments)
    mmb.solve(solver, state, sampler=mmb.BlockSampler(blocks, sampled, 1), batches=batches, steps=steps)
    return solver, float(state.x)


def test_blocks_that_are_visited_rarely_catch_up_at_every_visit():
    """In 60 steps hardly any of the 5,000 blocks is seen twice; waiting for them would take a thousand."""
    lines = []
    solver, x = chain(5000, 5, print=lines.append)
    assert solver.inner_steps == 2  # the first goes nine tenths of the way
    assert "2 updates" in lines[0]
    assert x == pytest.approx(1.0, abs=0.15)
    _, waited = chain(5000, 5, inner_steps=1)
    assert abs(waited - 1) > 0.3


def test_blocks_are_updated_once_where_that_does():
    assert chain(10, 5)[0].inner_steps == 1  # x waits for them a little
    assert chain(200, 2, variance_reduction="storm")[0].inner_steps == 1  # which needs it
    assert automatic(made(Saddle, {}, 1000), 2)[0].inner_steps == 1  # nothing to wait for


def test_lower_variables_that_start_far_away_do_not_mislead():
    """x starts at the solution, and stays near it while the lower variables come from far away."""
    lines = []
    solver, x = chain(30, 10, start=1.0, lower=-100.0, steps=20, print=lines.append)
    assert solver.first_inner_steps > 1
    assert "at its first visit" in lines[0]
    assert x == pytest.approx(1.0, abs=0.5)


def test_x_does_not_swing_around_what_follows_it():
    """All of the gradient is a third of the blocks late."""

    def f(x, a, y, b):
        return (y - b).square().sum()

    def g(x, y, b):  # of condition 2, so that y follows slowly
        return ((y - x).square() * torch.tensor([1.0, 2.0])).sum()

    targets = 1 + 0.3 * torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    batches = lambda blocks: (targets[blocks], targets[blocks])  # noqa: E731
    start = {"lower": torch.zeros(30, 2), "batches": batches, "blocks_per_step": 10, "print": None}
    solver, state = mmb.auto(mmb.Problem(f, g, 30), torch.zeros(2), **start)
    mmb.solve(solver, state, sampler=mmb.BlockSampler(30, 10, 1), batches=batches, steps=100)
    assert (state.x - targets.mean(0)).norm() < 0.1 * targets.mean(0).norm()


def test_slow_lower_variables_do_not_become_slower_with_x():
    """Of condition 200: x swings because y is slow, so its step size falls, and y must not follow it down."""
    known = Quadratic(1, torch.Generator().manual_seed(101), condition=200.0, d_x=3)
    solver, state, batches = automatic(known, 1)
    start = norm(known.gradient(state.x))
    mmb.solve(solver, state, sampler=mmb.BlockSampler(1, 1), batches=batches, steps=400)
    assert norm(known.gradient(state.x)) < 0.06 * start


def test_steps_stay_long_enough_to_average_noise_out():
    """F = x^2 / 2 with noise of size 1: the error falls as one over the root of the number of steps."""
    draws = torch.Generator().manual_seed(0)
    batches = lambda blocks: (torch.randn(1, generator=draws), None)  # noqa: E731
    problem = mmb.Problem(lambda x, a, y, b: 0.5 * x**2 + b * x, None, 1)
    solver, state = mmb.auto(problem, torch.tensor(1.0), batches=batches, blocks_per_step=1, print=None)
    mmb.solve(solver, state, sampler=mmb.BlockSampler(1, 1), batches=batches, steps=1500)
    assert 1e-4 < float(state.shared["scale"]) < 0.1
    assert abs(float(state.x)) < 0.1


def test_gradients_that_grow_on_the_way_down_are_no_divergence():
    """The start is nearly flat; on the way to the solution the gradient is 30,000 times as large."""
    problem = mmb.Problem(lambda x, a, y, b: b - torch.exp(-0.5 * (x - 5) ** 2), None, 1)
    batches = lambda blocks: (torch.ones(1, dtype=torch.float64), None)  # noqa: E731
    start = torch.tensor(0.0, dtype=torch.float64)
    solver, state = mmb.auto(problem, start, batches=batches, blocks_per_step=1, print=None)
    mmb.solve(solver, state, sampler=mmb.BlockSampler(1, 1), batches=batches, steps=300)
    assert float(state.x) == pytest.approx(5.0, abs=0.05)


def test_noise_slows_lower_variables_down():
    """Their own noise averages out, though it is small beside the first gradient of x."""
    draws, offs = torch.Generator().manual_seed(0), []
    problem = mmb.Problem(lambda x, a, y, b: 0.5 * y**2, lambda x, y, b: 0.5 * (y - x - b) ** 2, 10)
    batches = lambda blocks: (torch.zeros(10), torch.randn(10, generator=draws))  # noqa: E731
    start = {"lower": torch.zeros(10), "batches": batches, "blocks_per_step": 10, "print": None}
    solver, state = mmb.auto(problem, torch.tensor(1.0), **start)
    look = lambda state, info: offs.append(float((state.lower - state.x).square().mean()))  # noqa: E731
    sampler = mmb.BlockSampler(10, 10)
    mmb.solve(solver, state, sampler=sampler, batches=batches, steps=1500, callbacks=[look])
    assert sum(offs[-500:]) / 500 < 0.2  # of 1; 0.4 at the step sizes of the start


def test_lower_variables_that_become_curved_do_not_diverge():
    """The curvature of g is x squared, and 16 times as large where x belongs as at the start."""
    problem = mmb.Problem(
        lambda x, a, y, b: 0.5 * (x - 4) ** 2 + 0.5 * y**2, lambda x, y, b: 0.5 * (x * y - b) ** 2, 2
    )
    batches = lambda blocks: (torch.zeros(2), torch.ones(2))  # noqa: E731
    start = {"lower": torch.zeros(2), "batches": batches, "blocks_per_step": 2, "print": None}
    solver, state = mmb.auto(problem, torch.tensor(1.0), **start)
    mmb.solve(solver, state, sampler=mmb.BlockSampler(2, 2), batches=batches, steps=150)
    assert float(state.x) == pytest.approx(4.0, abs=0.05)
    assert state.lower.tolist() == pytest.approx([0.25, 0.25], abs=0.01)  # 1 / x


def test_a_start_near_an_inflection_point():
    """The curvature of -exp(-x^2 / 2) is small there; a step of one over it would end where all is flat."""
    problem = mmb.Problem(lambda x, a, y, b: -torch.exp(-0.5 * x**2) * b, None, 1)
    batches = lambda blocks: (torch.ones(1, dtype=torch.float64), None)  # noqa: E731
    start = torch.tensor(1.01, dtype=torch.float64)
    solver, state = mmb.auto(problem, start, batches=batches, blocks_per_step=1, print=None)
    mmb.solve(solver, state, sampler=mmb.BlockSampler(1, 1), batches=batches, steps=60)
    assert float(state.x) == pytest.approx(0.0, abs=0.01)


def test_one_huge_estimate_does_not_hold_x_back():
    """The estimates after it agree with each other, and not with it."""
    problem = mmb.Problem(lambda x, a, y, b: 0.5 * (x - 1).square().sum() + b @ x, None, 1)
    sizes = iter([0.0] * 20 + [-1000.0] + [0.0] * 100)
    batches = lambda blocks: (torch.full((1, 3), next(sizes)), None)  # noqa: E731
    solver, state = mmb.auto(problem, torch.zeros(3), batches=batches, blocks_per_step=1, print=None)
    mmb.solve(solver, state, sampler=mmb.BlockSampler(1, 1), batches=batches, steps=100)
    assert state.x.tolist() == pytest.approx([1.0] * 3, abs=0.01)


def test_going_back_undoes_at_most_half_of_a_run():
    known = made(Saddle, {}, 4)
    solver, state, batches = automatic(known, 2)
    sampler = iter(mmb.BlockSampler(4, 2))
    for _ in range(15):
        mmb.solve(solver, state, sampler=sampler, batches=batches, steps=7)
        assert solver._copy["step"] >= min(state.step - 1, state.step // 2 - 10)


def test_functions_that_draw_are_probed_at_the_same_draws():
    """Dropout would look like an endless curvature; the caller's random numbers stay where they are."""
    problem = mmb.Problem(
        lambda x, a, y, b: (torch.nn.functional.dropout(x, 0.5) - b).square().sum(), None, 2
    )
    batches = lambda blocks: (torch.ones(2, 50), None)  # noqa: E731
    before = torch.get_rng_state()
    solver, _ = mmb.auto(problem, torch.zeros(50), batches=batches, blocks_per_step=2, print=None)
    assert 2 < solver.findings.smoothness < 10  # between 2 and 8
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
def test_curvature_is_found_in_any_unit_of_x(unit):
    problem = mmb.Problem(lambda x, a, y, b: torch.cosh(x / unit - b).sum(), None, 2)
    batches = lambda blocks: (torch.ones(2, 3), None)  # noqa: E731
    solver, _ = mmb.auto(problem, torch.zeros(3), batches=batches, blocks_per_step=2, print=None)
    assert solver.findings.smoothness == pytest.approx(1.543 / unit**2, rel=0.05)  # cosh(1)


def test_one_line_says_what_was_found():
    lines = []
    automatic(made(Quadratic, {}, 4), 2, print=lines.append)
    (line,) = lines
    assert all(word in line for word in ("gradient", "noise", "curvature", "MomentumHessian", "lr_lower"))


def test_a_gradient_of_zero_is_said():
    problem = mmb.Problem(lambda x, a, y, b: (b - 1) ** 2 + 0 * x, None, 2)  # does not depend on x
    lines = []
    batches = lambda blocks: (torch.ones(2), None)  # noqa: E731
    arguments = {"batches": batches, "blocks_per_step": 2, "print": lines.append}
    solver, state = mmb.auto(problem, torch.tensor(0.0), **arguments)
    assert "gradient of zero" in lines[0]
    mmb.solve(solver, state, sampler=mmb.BlockSampler(2, 2), batches=batches, steps=5)
    assert float(state.x) == 0.0
    assert float(state.shared["scale"]) > 0.5  # no NaN


def test_step_sizes_that_are_far_too_long_are_survived():
    """The solver goes back and shortens its steps, where the plain one breaks."""
    known = made(Quadratic, {}, 10)
    solver, state, batches = automatic(known, 5)
    start = norm(known.gradient(state.x))
    wild = AdaptiveSolver(
        known.problem,
        solver.hypergradient,
        lr=30 * solver.lr,
        lr_dual=solver.lr_dual,
        lr_lower=solver.lr_lower,
        memory=solver.memory,
        z_start="estimate",
    )
    state = wild.init(known.x0, dual=known.dual0, lower=known.lower0)
    mmb.solve(wild, state, sampler=mmb.BlockSampler(10, 5, 1), batches=batches, steps=400)
    assert float(state.shared["scale"]) < 0.1
    assert norm(known.gradient(state.x)) < 0.5 * start


def test_a_start_where_the_gradient_vanishes_is_no_divergence():
    """With duals near zero the first gradient is tiny, and estimates grow as duals move."""
    problem = mmb.Problem(lambda x, a, y, b: a * (x - b) - 0.5 * a**2, None, 4)  # F = mean (x - b)^2 / 2
    batches = lambda blocks: (torch.tensor([1.0, 2.0, 3.0, 6.0])[blocks], None)  # noqa: E731
    start = {"dual": torch.full((4,), 1e-6), "batches": batches, "blocks_per_step": 4, "print": None}
    solver, state = mmb.auto(problem, torch.tensor(0.0), **start)
    result = mmb.solve(solver, state, sampler=mmb.BlockSampler(4, 4), batches=batches, steps=100)
    assert result.state.step == 100  # it never went back
    assert float(state.x) == pytest.approx(3.0, abs=0.05)


def test_data_that_are_not_finite_are_still_an_error():
    known = made(Quadratic, {}, 4)
    solver, state, batches = automatic(known, 4)
    blocks = torch.arange(4)
    solver.step(state, blocks, *batches(blocks))
    before = copy.deepcopy(state.state_dict())
    upper, lower = batches(blocks)
    with pytest.raises(mmb.BrokenStepError, match="upper_batch holds NaN"):
        solver.step(state, blocks, {**upper, "center": upper["center"] * float("nan")}, lower)
    torch.testing.assert_close(state.state_dict(), before, rtol=0, atol=0)


def test_save_and_resume_continue_the_scale():
    known = made(Saddle, {}, 10)
    solver, state, batches = automatic(known, 5)
    mmb.solve(solver, state, sampler=mmb.BlockSampler(10, 5), batches=batches, steps=30)
    resumed = solver.init(known.x0, dual=known.dual0)
    resumed.load_state_dict(state.state_dict())
    assert torch.equal(resumed.shared["scale"], state.shared["scale"])
    assert float(state.shared["scale"]) != solver.first_scale


def test_problems_without_the_curvature_they_need():
    linear = mmb.Problem(lambda x, a, y, b: (y - b) ** 2 + x**2, lambda x, y, b: (y - x).abs() + 0 * b, 2)
    arguments = {"batches": lambda blocks: (torch.ones(2), torch.ones(2)), "blocks_per_step": 2}
    with pytest.raises(ValueError, match=r"lower.*strongly convex.*twice"):
        mmb.auto(linear, torch.tensor(1.0), lower=torch.zeros(2), **arguments)
    flat = mmb.Problem(lambda x, a, y, b: a * (x - b), None, 2)
    arguments["batches"] = lambda blocks: (torch.ones(2), None)
    with pytest.raises(ValueError, match=r"upper.*strongly concave"):
        mmb.auto(flat, torch.tensor(1.0), dual=torch.zeros(2), **arguments)
    with pytest.raises(ValueError, match="probes"):
        mmb.auto(flat, torch.tensor(1.0), dual=torch.zeros(2), probes=1, **arguments)


def quadratic_dual(x, a, y, b):
    return (y - b).square().sum() + a @ y - a.square().sum()


def quadratic_lower(x, y, b):
    return (y - x).square().sum()


def wrong(upper=quadratic_dual, lower=quadratic_lower, project=None, **changes):
    """`mmb.auto` on a small problem with something wrong in it."""
    targets = torch.ones(6, 3)
    arguments = {"dual": torch.zeros(6, 3), "lower": torch.zeros(6, 3), "blocks_per_step": 2, "print": None}
    arguments |= {"batches": lambda blocks: (targets[blocks], targets[blocks])} | changes
    problem = arguments.pop("problem", mmb.Problem(upper, lower, 6, project))
    return mmb.auto(problem, arguments.pop("x0", torch.zeros(3)), **arguments)


def infinite(blocks):
    return torch.full((2, 3), float("inf")), torch.ones(2, 3)


MISTAKES = {
    "saddle below": ({"lower": lambda x, y, b: (y[0] - x[0]) ** 2 - y[1] ** 2}, "lower.*strongly convex.*-2"),
    "concave below": ({"lower": lambda x, y, b: -(y - x).square().sum()}, "lower.*strongly convex"),
    "norm at zero": ({"lower": lambda x, y, b: y.norm() + (y - x).square().sum()}, "lower.*twice.*norm"),
    "convex in the dual": ({"upper": lambda x, a, y, b: (a - y).square().sum()}, "upper.*concave.*-2"),
    "batches of all blocks": (
        {"batches": lambda blocks: (torch.ones(6, 3),) * 2},
        "upper_batch.*leading axis",
    ),
    "arrays": ({"batches": lambda blocks: (torch.ones(2, 3).numpy(),) * 2}, "upper_batch.*tensors.*ndarray"),
    "projection of another shape": ({"project": lambda a: a.sum()}, "project_dual.*shape"),
    "infinite data": ({"batches": infinite}, "upper_batch holds NaN or infinity"),
    "infinite values": ({"upper": lambda x, a, y, b: x.log().sum() - a @ a}, "upper.*check f"),
    "seed": ({"generator": 3}, "generator.*manual_seed"),
    "no function": ({"print": True}, "print.*None"),
    "optimizer": ({"optimizer": torch.optim.SGD}, "optimizer.*mmb.Solver"),
    "no problem": ({"problem": quadratic_dual}, "problem.*mmb.Problem"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(name):
    changes, words = MISTAKES[name]
    with pytest.raises((TypeError, ValueError, mmb.BrokenStepError), match=words):
        wrong(**changes)
    wrong()  # without it, it is right
