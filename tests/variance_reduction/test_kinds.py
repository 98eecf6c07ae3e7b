"""What is special about single kinds."""

import pytest
import torch

import mmb
from mmb import memory
from mmb.memory import NoRoomError

CENTERS = torch.tensor([[1.0, 2.0, 3.0, 6.0], [0.0, -1.0, 1.0, 4.0]], dtype=torch.float64)  # [block, batch]


def problem():
    """Lower variables are means of noisy centers, and f follows them: its gradient in x is known."""
    return mmb.Problem(
        upper=lambda x, a, y, batch: 0.5 * (y - batch) ** 2 + 0.5 * x**2,
        lower=lambda x, y, batch: 0.5 * (y - x - batch) ** 2,
        num_blocks=2,
    )


def run(reduction, steps, seed=0):
    """Estimates of the last hundred steps, at x = 0 and beta = 1: noise alone makes them differ."""
    generator = torch.Generator().manual_seed(seed)
    solver = mmb.Solver(
        problem(), mmb.QuadraticSGD(lr=0.1), lr=lambda step: 0.0, lr_lower=0.1, variance_reduction=reduction
    )
    zeros = torch.zeros(2, dtype=torch.float64)
    state = solver.init(zeros[0], lower=zeros)
    estimates = []
    for _ in range(steps):
        upper, lower = (torch.randint(4, (2,), generator=generator) for _ in range(2))
        samples = (upper, lower) if isinstance(reduction, mmb.Saga) else None
        rows = torch.arange(2)
        info = solver.step(state, rows, CENTERS[rows, upper], CENTERS[rows, lower], samples=samples)
        estimates.append(info.estimate)
    return torch.stack(estimates[-100:])


def test_saga_is_exact_once_all_batches_are_known():
    """y_i = mean of the centers, so the gradient of the mean loss at x = 0 vanishes."""
    assert run(mmb.Saga(4, 4), 400).abs().max() < 1e-8
    assert run(None, 400).std() > 0.1


def test_storm_has_less_noise():
    assert run(mmb.Storm(beta=0.05), 600).std() < 0.5 * run(None, 600).std()


def test_storm_with_beta_one_is_no_reduction():
    torch.testing.assert_close(run(mmb.Storm(beta=1.0), 50), run(None, 50))


def test_saga_by_hand():
    """Three visits to one block with two batches of g: the lower gradient is now - then + mean of then."""
    values = torch.tensor([[1.0, 5.0]], dtype=torch.float64)
    linear = mmb.Problem(lambda x, a, y, b: 0.5 * x**2 + 0 * y, lambda x, y, b: 0.5 * b * (y - x) ** 2, 1)
    solver = mmb.Solver(
        linear, mmb.Identity(), lr=lambda step: 0.0, lr_lower=0.1, variance_reduction=mmb.Saga(1, 2)
    )
    state = solver.init(torch.zeros((), dtype=torch.float64), lower=torch.ones(1, dtype=torch.float64))
    block, zero, seen = torch.tensor([0]), torch.tensor([0]), []
    for batch in (0, 1, 0):
        before = state.lower.clone()
        solver.step(state, block, None, values[:, batch], samples=(zero, torch.tensor([batch])))
        seen.append(float((before - state.lower) / 0.1))
    y1 = 1 - 0.1 * 1
    y2 = y1 - 0.1 * 5 * y1
    expected = [1.0, 5 * y1, y2 - 1.0 + (1.0 + 5 * y1) / 2]
    assert seen == pytest.approx(expected)


BAD = [
    ({"variance_reduction": "svrg"}, "variance_reduction.*storm.*saga.*svrg"),
    ({"variance_reduction": "storm", "inner_steps": 2}, "variance_reduction.*inner_steps"),
]


@pytest.mark.parametrize(("options", "words"), BAD)
def test_bad_choices(options, words):
    with pytest.raises(ValueError, match=words):
        mmb.Solver(problem(), mmb.Identity(), lr=0.1, lr_lower=0.1, **options)


def test_bad_numbers():
    with pytest.raises(ValueError, match="beta"):
        mmb.Storm(beta=0)
    with pytest.raises(ValueError, match="lower_batches"):
        mmb.Saga(1, 0)


STEPS = [
    (mmb.Saga(4, 4), {}, ValueError, "samples.*4 and 4"),
    (mmb.Saga(4, 4), {"samples": torch.tensor([0, 1])}, TypeError, "samples.*two"),
    (mmb.Saga(4, 2), {"samples": (torch.tensor([0, 2]),) * 2}, ValueError, "samples.*0 to 1.*lower"),
    (mmb.Storm(), {"samples": (torch.tensor([0, 1]),) * 2}, ValueError, "samples.*None.*Saga"),
    (mmb.Storm(), {"weights": torch.ones(2)}, ValueError, "weights.*variance_reduction"),
]  # fmt: skip


@pytest.mark.parametrize(("reduction", "options", "error", "words"), STEPS)
def test_bad_steps_change_nothing(reduction, options, error, words):
    solver = mmb.Solver(problem(), mmb.Identity(), lr=0.1, lr_lower=0.1, variance_reduction=reduction)
    state = solver.init(torch.zeros(()).double(), lower=torch.zeros(2).double())
    with pytest.raises(error, match=words):
        solver.step(state, torch.arange(2), CENTERS[:, 0], CENTERS[:, 0], **options)
    assert state.step == 0


def test_an_estimator_must_name_its_calls():
    class Silent(mmb.Exact):
        calls = ()

    solver = mmb.Solver(problem(), Silent(), lr=0.1, lr_lower=0.1, variance_reduction="storm")
    state = solver.init(torch.zeros(()).double(), lower=torch.zeros(2).double())
    with pytest.raises(ValueError, match=r"calls.*products"):
        solver.step(state, torch.arange(2), CENTERS[:, 0], CENTERS[:, 0])


def test_an_estimator_must_name_what_it_asks_for_twice():
    estimator = mmb.FirstOrder(penalty=10.0, lr=0.1, order=2)
    estimator.calls = ("upper_other", "lower_other", "lower")
    solver = mmb.Solver(problem(), estimator, lr=0.1, lr_lower=0.1, variance_reduction="storm")
    state = solver.init(torch.zeros(()).double(), lower=torch.zeros(2).double())
    with pytest.raises(ValueError, match=r"calls.*upper_other_2"):
        solver.step(state, torch.arange(2), CENTERS[:, 0], CENTERS[:, 0])


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [
        (mmb.Storm(), 4 * 7 + 2 * 2 + 5 * 3),
        (mmb.Saga(4, 5), 3 * 7 + 2 + 3 * 3 + 4 * (7 + 2 + 3) + 5 * (7 + 2 * 3)),
    ],
)
def test_memory_per_block_is_what_is_stated(reduction, expected):
    """x has 7 numbers, a dual 2 and a lower variable 3; counters of batches are not stated."""
    stated = mmb.Problem(lambda x, a, y, b: x.sum(), lambda x, y, b: y @ y, 10)
    solver = mmb.Solver(
        stated, mmb.QuadraticSGD(lr=0.1), lr=0.1, lr_dual=0.1, lr_lower=0.1, variance_reduction=reduction
    )
    state = solver.init(torch.zeros(7), dual=torch.zeros(10, 2), lower=torch.zeros(10, 3))
    memory = state.shared["reduction"]
    leaves = mmb.trees.tree_leaves((memory["blocks"], memory["batches"]))
    assert sum(leaf.numel() for leaf in leaves if leaf.ndim > 1) == 10 * expected


@pytest.mark.parametrize("reduction", [mmb.Storm(), mmb.Saga(4, 5)])
def test_memory_is_bounded_by_what_is_free(reduction, monkeypatch):
    solver = mmb.Solver(problem(), mmb.QuadraticSGD(0.1), lr=0.1, lr_lower=0.1, variance_reduction=reduction)
    start = {"lower": torch.zeros(2).double()}
    kept = solver.init(torch.zeros(7).double(), **start).shared["reduction"]
    needed = sum(leaf.nbytes for leaf in mmb.trees.tree_leaves((kept["blocks"], kept["batches"])))
    monkeypatch.setattr(memory, "free_bytes", lambda device: needed)
    solver.init(torch.zeros(7).double(), **start)
    monkeypatch.setattr(memory, "free_bytes", lambda device: needed - 1)
    with pytest.raises(NoRoomError, match=rf"{type(reduction).__name__} remembers.*all 2.*free"):
        solver.init(torch.zeros(7).double(), **start)
