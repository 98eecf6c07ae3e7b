"""The theorems' numbers against the paper's formulas, and their promises against measured runs."""

import dataclasses
import math

import pytest
import torch

import mmb
from mmb.problems import Quadratic, RobustTasks
from mmb.theory import Constants, ErrorSequences, Parameters, Sampling, Start, Theorem

SOME = Constants(
    strong_concavity=0.3,
    strong_convexity=0.7,
    smoothness_upper=1.3,
    smoothness_lower=1.1,
    lipschitz_upper=0.9,
    cross_bound=0.2,
    lipschitz_cross=0.15,
    lipschitz_hessian=0.25,
    noise=2.0,
)
SAMPLING = Sampling(num_blocks=12, blocks_per_step=4, batch_size=3)
START = Start(value_gap=1.7, gradient=2.3, dual=3.1, lower=1.9, estimator=0.8)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()  # so that what earlier tests compiled does not count


def as_printed(algorithm, epsilon):
    """The two theorems with the constants of their proofs, letter by letter."""
    mu_f, mu_g, L_f, L_g, C_f, C_gxy, L_gxy, L_gyy, sigma = dataclasses.astuple(SOME)
    m, k, B = 12, 4, 3
    e2 = epsilon**2
    C_y, C_a = L_g / mu_g, L_f / mu_f
    L_F = math.sqrt(
        2 * L_f**2 * (1 + C_a**2 + C_y**2)
        + 6 * L_gxy**2 * (1 + C_y**2) * C_f**2 / mu_g**2
        + 6 * C_gxy**2 * L_gyy**2 * (1 + C_y**2) * C_f**2 / mu_g**4
        + 6 * C_gxy**2 * L_f**2 * (1 + C_a**2 + C_y**2) / mu_g**2
    )
    B_F = 2 * C_f**2 + 2 * C_gxy**2 * C_f**2 / mu_g**2
    if algorithm == 1:
        C1 = 4 * (2 * L_f**2 + 6 * C_gxy**2 * L_f**2 / mu_g**2)
        C2_ = 4 * (2 * L_f**2 + 6 * L_gxy**2 * C_f**2 / mu_g**2 + 6 * C_gxy**2 * L_f**2 / mu_g**2)
        C3 = 4 * 6 * C_gxy**2 * C_f**2 / mu_g**4
        C2 = 24 * L_f**2 * C1 / mu_f**2 + C2_ + 32 * L_gyy**2 * C3
        C4 = (
            8 * B_F
            + 4 * sigma**2
            + 12 * sigma**2 * C_f**2 / mu_g**2
            + 12 * (C_gxy**2 + sigma**2) * sigma**2 / mu_g**2
        )
        rate = min(1, B * e2 / (96 * C3 * sigma**2))
        contraction, C_s = rate, L_gyy * math.sqrt(1 + C_y**2)
        factor = math.sqrt(80), math.sqrt(640), math.sqrt(160), 30
    else:
        gamma = C_f / mu_g
        C1_, C2_, C3 = 2 * L_f**2, 2 * L_f**2 + 4 * L_gxy**2 * C_f**2 / mu_g**2, 4 * C_gxy**2
        C1 = C1_ + 24 * L_g**2 * C3 / mu_g**2
        C2 = C2_ + 24 * L_g**2 * C3 / mu_g**2 + 24 * L_f**2 * C1 / mu_f**2
        C4 = 8 * B_F + 4 * sigma**2 + 4 * sigma**2 * gamma**2
        enlarged = 2 * (1 + gamma**2) * sigma**2
        rate = min(mu_g / L_g**2, B * e2 / (96 * C3 * mu_g * enlarged))
        contraction, C_s = rate * mu_g, L_g / mu_g
        factor = 8, 32, 16, 32
    eta1 = min(mu_f / L_f**2, 1 / mu_f, 4 * m / (mu_f * k), B * e2 / (96 * C1 * mu_f * sigma**2))
    eta2 = min(mu_g / L_g**2, 2 * m / (k * mu_g), mu_g * B * e2 / (48 * C2 * sigma**2))
    beta0 = min(k, B) * e2 / (12 * C4)
    eta0 = min(
        1 / (2 * L_F),
        beta0 / (factor[0] * L_F),
        eta1 * mu_f * k / (factor[1] * m * math.sqrt(C1) * C_a),
        contraction * k / (factor[1] * m * math.sqrt(C3) * C_s),
        k * eta2 * mu_g / (factor[2] * m * math.sqrt(C2) * C_y),
    )
    away = (C1 * START.dual + C2 * START.lower + C3 * START.estimator) / (4 * m) + C4 / min(k, B)
    T = max(
        factor[3] * START.value_gap / (eta0 * e2),
        15 * ((1 - beta0) * START.gradient + beta0 * away) / (beta0 * e2),
        60 * C1 * START.dual / (mu_f * k * eta1 * e2),
        30 * C2 * START.lower / (k * eta2 * mu_g * e2),
        60 * C3 * START.estimator / (k * contraction * e2),
    )
    return eta0, eta1, eta2, beta0, rate, T


@pytest.mark.parametrize("algorithm", [1, 2])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 10.0])
def test_printed_parameters_are_the_papers(algorithm, epsilon):
    got = Theorem(algorithm, SOME, SAMPLING, corrected=False).parameters(epsilon, START)
    *rates, steps = as_printed(algorithm, epsilon)
    numbers = [got.lr, got.lr_dual, got.lr_lower, got.beta, got.estimator_rate]
    assert numbers == pytest.approx(rates, rel=1e-9)
    assert got.steps == pytest.approx(math.ceil(steps), rel=1e-9, abs=1)


@pytest.mark.parametrize("algorithm", [1, 2])
def test_corrections(algorithm):
    right, printed = (Theorem(algorithm, SOME, SAMPLING, corrected) for corrected in (True, False))
    corrected_lr, printed_lr = (theorem.parameters(1e-3, START).lr_dual for theorem in (right, printed))
    # lr_dual is limited by noise at this accuracy: mu_f moves from the denominator to the numerator.
    ratio = 0.3**2 * printed.weight_dual / right.weight_dual
    assert corrected_lr / printed_lr == pytest.approx(ratio)
    assert right.motion_dual == pytest.approx(1.3 / 0.3 * math.hypot(1, 1.1 / 0.7))
    assert right.smoothness > printed.smoothness
    if algorithm == 2:
        follow = (0.25 * 0.9 / 0.7 + 1.3) / 0.7
        assert right.follow == pytest.approx(follow)
        assert right.weight_estimator == pytest.approx(16 * 0.2**2)
        assert right.weight_dual == pytest.approx(8 * 1.3**2 + 24 * follow**2 * 16 * 0.2**2)


@pytest.mark.parametrize("algorithm", [1, 2])
def test_with_all_blocks_only_the_batches_make_noise(algorithm):
    def variance(**sampling):
        return Theorem(algorithm, SOME, Sampling(num_blocks=12, **sampling)).variance

    assert variance(blocks_per_step=12, batch_size=10**9) < 1e-6
    assert variance(blocks_per_step=11, batch_size=10**9) > 1e-3
    one = Theorem(algorithm, SOME, Sampling(1, 1, 10**9))
    assert one.variance < 1e-6


@pytest.mark.parametrize("algorithm", [1, 2])
def test_parallel_speed_up_and_accuracy_exponent(algorithm):
    def steps(epsilon, blocks_per_step, batch_size):
        theorem = Theorem(algorithm, SOME, Sampling(10**4, blocks_per_step, batch_size))
        return theorem.parameters(epsilon, START).steps

    base = steps(1e-3, 4, 2)
    assert steps(1e-3, 4, 4) == pytest.approx(base / 2, rel=1e-3)
    assert steps(1e-3, 8, 2) == pytest.approx(base / 2, rel=1e-3)
    assert steps(0.5e-3, 4, 2) == pytest.approx(16 * base, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strong_concavity": 0.0}, "strong_concavity.*positive"),
        ({"noise": -1.0}, "noise.*nonnegative"),
        ({"lipschitz_upper": math.inf}, "lipschitz_upper"),
        ({"strong_convexity": 2.0}, "strong_convexity.*smoothness_lower"),
    ],
)
def test_impossible_constants_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SOME, **change)


def test_impossible_sampling_and_accuracy_are_refused():
    with pytest.raises(ValueError, match="blocks_per_step"):
        Sampling(3, 4)
    with pytest.raises(ValueError, match="batch_size"):
        Sampling(3, 2, 0)
    with pytest.raises(ValueError, match="algorithm"):
        Theorem(3, SOME, SAMPLING)
    with pytest.raises(ValueError, match="epsilon"):
        Theorem(1, SOME, SAMPLING).parameters(0.0, START)


@pytest.mark.parametrize(
    ("numbers", "name"),
    [((10, 2, math.nan), "batch_size"), ((10.5, 2), "num_blocks"), ((10, 2.0), "blocks_per_step")],
)
def test_sampling_is_in_whole_numbers(numbers, name):
    with pytest.raises(ValueError, match=f"^{name}:.*whole"):
        Sampling(*numbers)


@pytest.mark.parametrize(
    "change", [{"dual": math.nan}, {"lower": -1.0}, {"value_gap": -1.0}, {"gradient": math.inf}]
)
def test_impossible_starts_are_refused(change):
    (name,) = change
    with pytest.raises(ValueError, match=f"^{name}:.*nonnegative.*upper bound"):
        dataclasses.replace(START, **change)


def test_a_value_gap_that_is_not_known_is_named():
    known = RobustTasks(3, seeded(0))
    solver = mmb.Solver(known.problem, mmb.QuadraticSGD(lr=0.1), lr=0.1, lr_dual=0.1, lr_lower=0.1)
    start = ErrorSequences(known, solver.init(known.x0, dual=known.dual0, lower=known.lower0)).start
    theorem = Theorem(1, SOME, SAMPLING)
    with pytest.raises(ValueError, match=r"value_gap.*nan.*upper bound"):
        theorem.parameters(1.0, start)
    assert theorem.parameters(1.0, dataclasses.replace(start, value_gap=2.0)).steps > 0


def run(known, parameters, sampling, *, x, steps, every=1, seed=1, away=0.0, **options):
    solver = parameters.solver(known.problem, **options)
    state = solver.init(x, dual=known.dual_star(x) + away, lower=known.lower_star(x) - away)
    errors = ErrorSequences(known, state, every=every)
    sampler = mmb.BlockSampler(sampling.num_blocks, sampling.blocks_per_step, seeded(seed))
    batches = known.batches(sampling.batch_size, seeded(seed + 1000))
    mmb.solve(solver, state, sampler=sampler, batches=batches, steps=steps, callbacks=[errors])
    return errors


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("algorithm", [1, 2])
def test_the_theorem_keeps_its_promise(algorithm):
    """Parameters of the theorem, all its steps: the mean of |grad F|^2 is at most epsilon^2.

    The start has |grad F|^2 = 1.3 epsilon^2. Constants are mild, since there are thousands of steps at best.
    """
    sampling, radius = Sampling(20, 18, 8), 1.1
    known = Quadratic(
        20, seeded(0), d_x=3, d_dual=2, d_lower=2, mu_f=0.8, mu_g=1.0, condition=1.0, curvature=0.8,
        pull_x=0.3, pull_lower=0.05, sensitivity=0.02, spread=0.01, noise=0.01, hessian_noise=0.003,
    )  # fmt: skip
    x = known.x_star + torch.linalg.eigh(known.second_derivative).eigenvectors[:, -1]
    start = Start(
        value_gap=float(known.value(x) - known.value(known.x_star)),
        gradient=float(known.gradient(x).square().sum()),
        dual=0.0,
        lower=0.0,
        estimator=0.0 if algorithm == 1 else float(known.v_star(x).square().sum()),
    )
    epsilon = math.sqrt(start.gradient / 1.3)
    theorem = Theorem(algorithm, known.constants(radius), sampling)
    parameters = theorem.parameters(epsilon, start)
    errors = run(
        known, parameters, sampling, x=x, steps=parameters.steps, every=25, compile=True, check_every=0
    )
    for name in ("value_gap", "gradient", "dual", "lower", "estimator"):
        assert getattr(errors.start, name) == pytest.approx(getattr(start, name), abs=1e-12)
    means = errors.means()
    assert errors.distance <= radius
    assert means["gradient"] <= epsilon**2
    assert means["tracking"] <= 2 * epsilon**2
    bounds = theorem.bounds(parameters, start, parameters.steps, means)
    for name, bound in bounds.items():
        assert means[name] <= bound


@pytest.mark.parametrize("algorithm", [1, 2])
def test_lemmas_bound_the_measured_errors(algorithm):
    """Errors of duals, lower variables and Hessians or v, under noise, block sampling, and a moving x."""
    sampling, radius, steps = Sampling(20, 10, 2), 1.5, 100
    known = Quadratic(
        20, seeded(0), d_x=4, mu_f=0.5, mu_g=0.8, sensitivity=0.3, spread=0.1, noise=0.3, hessian_noise=0.2
    )
    constants = known.constants(radius)
    theorem = Theorem(algorithm, constants, sampling)
    longest = constants.strong_convexity / constants.smoothness_lower**2
    parameters = Parameters(
        lr=0.02,
        lr_dual=0.9 * constants.strong_concavity / constants.smoothness_upper**2,
        lr_lower=0.9 * longest,
        beta=0.2,
        estimator_rate=0.5 if algorithm == 1 else 0.9 * longest,
        radius=theorem.radius,
        steps=steps,
        algorithm=algorithm,
    )
    x = known.x_star + 0.3
    runs = [
        run(known, parameters, sampling, x=x, steps=steps, seed=seed, away=0.2, initial_hessian=1.0)
        for seed in range(2)
    ]
    assert max(errors.distance for errors in runs) <= radius
    means = {name: sum(errors.means()[name] for errors in runs) / 2 for name in runs[0].means()}
    bounds = theorem.bounds(parameters, runs[0].start, steps, means)
    for name, bound in bounds.items():
        assert 1e-4 * bound < means[name] <= bound, name


@pytest.mark.parametrize("lemma", ["dual", "estimator"])
def test_printed_lemmas_fail_where_strong_curvature_is_small(lemma):
    """At mu_f = mu_g = 1/20 errors of duals and of v exceed the printed bounds, not the corrected ones."""
    sampling, radius, steps = Sampling(20, 10, 2), 0.4, 200
    known = Quadratic(
        20, seeded(0), d_x=4, d_lower=3, mu_f=0.05, mu_g=0.05, condition=1.0, curvature=0.05,
        pull_x=0.02, pull_lower=0.02, sensitivity=0.1, spread=0.0, noise=0.01, hessian_noise=0.0,
    )  # fmt: skip
    constants = known.constants(radius)
    right, printed = (Theorem(2, constants, sampling, corrected) for corrected in (True, False))
    slow = 1e-3  # what the lemma in question follows is nearly still, so that only its own noise counts
    longest_dual = constants.strong_concavity / constants.smoothness_upper**2
    longest = constants.strong_convexity / constants.smoothness_lower**2
    parameters = Parameters(
        lr=1e-4,
        lr_dual=longest_dual * (1 if lemma == "dual" else slow),
        lr_lower=longest * slow,
        beta=0.2,
        estimator_rate=longest * (1 if lemma == "estimator" else slow),
        radius=right.radius,
        steps=steps,
        algorithm=2,
    )
    errors = run(known, parameters, sampling, x=known.x_star, steps=steps)
    assert errors.distance <= radius
    means = errors.means()
    measured = means[lemma]
    assert measured <= right.bounds(parameters, errors.start, steps, means)[lemma]
    assert measured > 3 * printed.bounds(parameters, errors.start, steps, means)[lemma]


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_the_correction_of_lr_dual_matters():
    """At mu_f = 1/120 lr_dual as printed breaks the promise |grad F - z|^2 <= 2 epsilon^2, corrected not.

    All else is as corrected, so that only mu_f in the wrong place shows. The run starts at the solution.
    """
    mu_f, noise, steps = 1 / 120, 0.01, 4000
    sampling, radius = Sampling(1, 1, 1), 0.08
    known = Quadratic(
        1, seeded(0), d_x=32, d_dual=32, d_lower=1, mu_f=mu_f, mu_g=1.0, condition=1.0, curvature=0.02,
        pull_x=0.25, pull_lower=0.01, sensitivity=0.01, spread=0.0, noise=noise, hessian_noise=0.0,
    )  # fmt: skip
    epsilon = math.sqrt(768) * mu_f * noise
    start = Start(value_gap=0.0, gradient=0.0, dual=0.0, lower=0.0, estimator=0.0)
    theorem = Theorem(2, known.constants(radius), sampling)
    parameters = theorem.parameters(epsilon, start)
    longest = mu_f / theorem.constants.smoothness_upper**2
    slipped = dataclasses.replace(parameters, lr_dual=min(longest, parameters.lr_dual / mu_f**2))
    assert parameters.steps <= steps
    measured = {}
    for name, chosen in (("corrected", parameters), ("printed", slipped)):
        errors = run(
            known, chosen, sampling, x=known.x_star, steps=steps, every=10, compile=True, check_every=0
        )
        assert errors.distance <= radius
        measured[name] = errors.means()
    assert measured["corrected"]["tracking"] <= 2 * epsilon**2 < measured["printed"]["tracking"]
    # The share of the duals' noise in the proof is epsilon^2 / 12.
    assert theorem.weight_dual * measured["corrected"]["dual"] <= epsilon**2 / 12
    assert theorem.weight_dual * measured["printed"]["dual"] > epsilon**2
    # What the theorem says of |grad F|^2 itself is not broken here: x hardly moves.
    assert all(means["gradient"] <= epsilon**2 for means in measured.values())
