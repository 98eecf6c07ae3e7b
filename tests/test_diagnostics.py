"""The numbers a step leaves, what is said of them, and the stop when they turn bad."""

import dataclasses

import pytest
import torch

import mmb
from mmb.diagnostics import verdict
from quadratics import Quadratic


def make(lr=0.05, **options):
    quadratic = Quadratic.make()
    problem = quadratic.problem(project_dual=mmb.projections.nonnegative())
    solver = mmb.Solver(
        problem, mmb.QuadraticSGD(lr=0.4), **{"lr": lr, "lr_dual": 0.5, "lr_lower": 0.5} | options
    )
    x, dual, lower = quadratic.start()
    return quadratic, solver, solver.init(x, dual=dual.abs(), lower=lower)


def test_residuals_are_what_they_say():
    quadratic, solver, state = make()
    blocks = torch.tensor([4, 0])
    x, dual, y = state.x.clone(), state.dual[blocks], state.lower[blocks]
    info = solver.step(state, blocks, *quadratic.batches(blocks))
    A, B, c, t = (getattr(quadratic, name)[blocks] for name in "ABct")
    D, E = quadratic.D[blocks], quadratic.E[blocks]
    grad_y = torch.einsum("kij,kj->ki", A, y) - B @ x - c
    grad_dual = torch.einsum("kij,kj->ki", D, y) + E @ x - dual
    moved = (dual + 0.5 * grad_dual).clamp(min=0)
    torch.testing.assert_close(info.lower_residual, grad_y.norm(dim=1))
    torch.testing.assert_close(info.dual_residual, (moved - dual).norm(dim=1) / 0.5)
    grad_y_f = y - t + torch.einsum("kij,ki->kj", D, dual)
    torch.testing.assert_close(info.hypergradient_residual, grad_y_f.norm(dim=1))  # v starts at zero
    torch.testing.assert_close(info.z_norm, state.z.norm())
    torch.testing.assert_close(info.value, info.values.mean())


def test_staleness():
    quadratic, solver, state = make()
    for blocks in ([0, 1], [1, 2], [0, 1]):
        chosen = torch.tensor(blocks)
        info = solver.step(state, chosen, *quadratic.batches(chosen))
    assert info.staleness.tolist() == [2, 1]
    assert state.staleness().tolist() == [0, 0, 1, 3, 3, 3]


def test_residuals_vanish_at_the_solution():
    quadratic, solver, state = make(lr=lambda step: 0.0)
    sampler = mmb.BlockSampler(6, 6)
    info = mmb.solve(solver, state, sampler=sampler, batches=quadratic.batches, steps=200).info
    for name in ("dual_residual", "lower_residual", "hypergradient_residual"):
        assert getattr(info, name).max() < 1e-6


def test_watch_prints_a_verdict_every_so_many_steps():
    quadratic, solver, state = make()
    lines = []
    watch = mmb.Watch(every=20, print=lines.append, keep=True)
    mmb.solve(
        solver,
        state,
        sampler=mmb.BlockSampler(6, 6),
        batches=quadratic.batches,
        steps=70,
        callbacks=[watch],
    )
    assert [line.split(":")[0] for line in lines] == ["step 20", "step 40", "step 60"]
    assert lines[0].endswith("| started")
    assert lines[1].endswith("| working: gradient falls")
    assert watch.last_good["step"] == 60


def test_watch_stops_an_unchecked_run_and_keeps_the_last_good_state():
    quadratic, solver, state = make(check_every=0)
    watch = mmb.Watch(every=5, print=lambda line: None, keep=True)

    def poisoned(blocks):
        upper, lower = quadratic.batches(blocks)
        if state.step >= 12:
            lower["c"] = lower["c"] * float("nan")
        return upper, lower

    with pytest.raises(mmb.BrokenStepError, match="block"):
        mmb.solve(
            solver, state, sampler=mmb.BlockSampler(6, 2), batches=poisoned, steps=50, callbacks=[watch]
        )
    assert watch.last_good["step"] == 10
    assert torch.isfinite(watch.last_good["x"]).all()


def test_watch_sees_what_was_broken_before_the_last_step_of_a_window():
    quadratic, solver, state = make(check_every=0)
    lines = []
    watch = mmb.Watch(every=5, print=lines.append, keep=True)
    blocks = torch.arange(6)
    for step in range(10):
        info = solver.step(state, blocks, *quadratic.batches(blocks))
        broken = dataclasses.replace(info, values=info.values * float("nan")) if step == 7 else info
        if step < 9:
            watch(state, broken)
    with pytest.raises(mmb.BrokenStepError, match=r"value.*nan.*5 steps"):
        watch(state, info)
    assert lines[-1].endswith("broken: NaN or infinity")
    assert watch.last_good["step"] == 5


def test_divergence_stops_with_the_state_before_it():
    quadratic, solver, state = make(lr=1e6)
    with pytest.raises(mmb.BrokenStepError, match="step sizes"):
        mmb.solve(solver, state, sampler=mmb.BlockSampler(6, 2), batches=quadratic.batches, steps=10_000)
    for leaf in (state.x, state.dual, state.lower, state.z):
        assert torch.isfinite(leaf).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "level"),
        ({"z_norm": 0.5}, "working"),
        ({"z_norm": 3.0}, "gradient grows"),
        ({"lower_residual": 5.0}, "lower level falls behind"),
        ({"dual_residual": 5.0}, "duals fall behind"),
        ({"hypergradient_residual": 5.0}, "estimator falls behind"),
        ({"value": float("nan")}, "broken"),
    ],
)
def test_verdicts(changes, words):
    names = ("value", "z_norm", "lower_residual", "dual_residual", "hypergradient_residual")
    before = dict.fromkeys(names, 1.0)
    assert words in verdict(before, before | changes)
    assert verdict({}, before) == "started"


@pytest.mark.parametrize("name", ["lower_residual", "dual_residual", "hypergradient_residual"])
def test_a_residual_that_is_negligible_raises_no_alarm(name):
    before, now = {"z_norm": 1.0, name: 1e-7}, {"z_norm": 0.5, name: 4e-4}
    assert verdict(before, now) == "working: gradient falls"
    assert "behind" in verdict(before, now | {name: 6e-4})


def test_no_alarm_while_z_warms_up():
    """z starts at zero, so |z| grows, x gains speed, and what started at its solution lags behind it."""
    known = mmb.problems.Quadratic(20, torch.Generator().manual_seed(0), noise=0.0)
    rates = {"lr": 0.01, "lr_dual": 0.4, "lr_lower": 0.4, "beta": 0.005}
    solver = mmb.Solver(known.problem, mmb.QuadraticSGD(lr=0.4), **rates)
    state = solver.init(known.x0, dual=known.dual_star(known.x0), lower=known.lower_star(known.x0))
    lines = []
    mmb.solve(
        solver,
        state,
        sampler=mmb.BlockSampler(20, 20),
        batches=known.exact,
        steps=150,
        callbacks=[mmb.Watch(every=30, print=lines.append)],
    )
    assert "warming up" in lines[1]
    assert not any(words in line for line in lines for words in ("behind", "grows: lower"))


def test_growing_gradients_are_no_warm_up():
    before = {"z_norm": 1.0, "estimate": 1.0}
    assert "gradient grows" in verdict(before, {"z_norm": 4.0, "estimate": 3.0})
    assert "warming up" in verdict(before, {"z_norm": 4.0, "estimate": 1.1})
