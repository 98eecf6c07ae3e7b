"""Blocks of different sizes, padded, move as each does alone."""

import pytest
import torch

import mmb

SIZES = [1, 3]


def data():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, 2, generator=generator, dtype=torch.float64) for size in SIZES]


@pytest.mark.parametrize("estimator", [lambda: mmb.MomentumHessian(), lambda: mmb.QuadraticSGD(lr=0.3)])
def test_padded_blocks_equal_single_ones(estimator):
    def upper(x, dual, y, batch):
        return 0.5 * (y - 1).square().sum() if batch is None else 0.5 * ((y - 1) * batch).square().sum()

    def lower(x, y, rows):
        return 0.5 * y @ y - y @ (rows @ x)

    x0 = torch.ones(2, dtype=torch.float64)
    alone = []
    for rows in data():
        solver = mmb.Solver(mmb.Problem(upper, lower, 1), estimator(), lr=lambda step: 0.0, lr_lower=0.5)
        state = solver.init(x0, lower=torch.zeros(1, len(rows), dtype=torch.float64))
        for _ in range(60):
            info = solver.step(state, torch.arange(1), None, rows[None])
        alone.append((state.lower[0], info.estimate))
    rows = torch.nn.utils.rnn.pad_sequence(data(), batch_first=True)
    mask = torch.tensor([[1.0, 0, 0], [1, 1, 1]], dtype=torch.float64)
    solver = mmb.Solver(
        mmb.Problem(upper, mmb.padded(lower), 2), estimator(), lr=lambda step: 0.0, lr_lower=0.5
    )
    state = solver.init(x0, lower=torch.zeros(2, 3, dtype=torch.float64))
    for _ in range(60):
        info = solver.step(state, torch.arange(2), mask, (mask, rows))
    for block, size in enumerate(SIZES):
        torch.testing.assert_close(state.lower[block, :size], alone[block][0])
        assert state.lower[block, size:].eq(0).all()
    torch.testing.assert_close(info.estimate, (alone[0][1] + alone[1][1]) / 2)


@pytest.mark.parametrize("curvature", [1.0, 0.01])
def test_what_is_padded_has_the_curvature_that_is_asked_for(curvature):
    lower = mmb.padded(lambda x, y, b: 0.005 * y @ y, curvature)
    mask = torch.tensor([1.0, 0.0])
    hessian = torch.func.hessian(lambda y: lower(torch.ones(2), y, (mask, None)))(torch.ones(2))
    torch.testing.assert_close(hessian, torch.diag(torch.tensor([0.01, curvature])))


@pytest.mark.parametrize("curvature", [0.0, -1.0, float("nan"), float("inf")])
def test_a_curvature_that_is_not_positive(curvature):
    with pytest.raises(ValueError, match=r"curvature.*positive"):
        mmb.padded(lambda x, y, b: y @ y, curvature)


def test_a_mask_of_another_shape():
    problem = mmb.Problem(lambda x, a, y, b: x.sum(), mmb.padded(lambda x, y, b: 0.5 * y @ y), 1)
    solver = mmb.Solver(problem, mmb.Identity(), lr=0.1, lr_lower=0.1)
    state = solver.init(torch.ones(2), lower=torch.zeros(1, 3))
    with pytest.raises(ValueError, match=r"mask.*\(3,\).*\(2,\)"):
        solver.step(state, torch.arange(1), None, (torch.ones(1, 2), torch.ones(1)))


def test_masks_are_numbers_or_booleans():
    values = {}
    for kind in (torch.float32, torch.bool):
        mask = torch.tensor([1, 0]).to(kind)
        lower = mmb.padded(lambda x, y, b: (x * y).sum())
        values[kind] = lower(torch.ones(2), torch.tensor([2.0, 3.0]), (mask, None))
    assert values[torch.bool] == values[torch.float32] == 2 + 0.5 * 9


def test_a_batch_without_its_mask():
    with pytest.raises(ValueError, match=r"lower_batch.*\(mask, batch\)"):
        mmb.padded(lambda x, y, b: y.sum())(torch.ones(2), torch.ones(2), torch.ones(5))
