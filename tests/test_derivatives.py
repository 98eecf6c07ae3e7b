"""Derivatives from autograd's tape and from torch.func are the same."""

import pytest
import torch

import mmb
from mmb.derivatives import gradients, over_blocks, second_derivatives
from mmb.oracles import Oracles
from mmb.trees import ravel_blocks, tree_leaves


def blockwise(x, y):
    """One value per block, [3]; y is a dict with a matrix and a scalar per block."""
    inner = torch.einsum("kij,j->ki", y["matrix"], x)
    return inner.square().sum(1) * y["scalar"] + y["scalar"] ** 4


def variables():
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return normal(2), {"matrix": normal(3, 2, 2), "scalar": normal(3)}


def compiled(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)


def test_tape_and_functions_agree(monkeypatch):
    x, y = variables()
    v = variables()[1]
    weights = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
    taped = second_derivatives(blockwise, x, y)
    found = [
        gradients(lambda both: blockwise(*both), (x, y), weights),
        taped.gradient,
        taped.products(v),
        taped.cross_product(v),
        taped.hessian_product(v),
        taped.hessian(),
    ]
    compiled(monkeypatch)
    traced = second_derivatives(blockwise, x, y)
    expected = [
        gradients(lambda both: blockwise(*both), (x, y), weights),
        traced.gradient,
        traced.products(v),
        traced.cross_product(v),
        traced.hessian_product(v),
        traced.hessian(),
    ]
    assert type(taped) is not type(traced)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("traced", [False, True])
def test_a_function_at_every_block(monkeypatch, traced):
    if traced:
        compiled(monkeypatch)
    x, y = variables()

    def of_block(matrix, nothing, scalar):
        assert nothing is None
        return (matrix @ x).sum() * torch.vmap(torch.sin)(scalar.expand(2)).sum()

    expected = [of_block(matrix, None, scalar) for matrix, scalar in zip(*y.values(), strict=True)]
    leaves = [y["matrix"], None, y["scalar"]]
    torch.testing.assert_close(over_blocks(of_block, leaves), torch.stack(expected))
    assert over_blocks(lambda *_: torch.ones(()), leaves).tolist() == [1.0] * 3


def test_blocks_are_left_behind_when_a_function_raises():
    _, y = variables()
    with pytest.raises(ZeroDivisionError):
        over_blocks(lambda scalar: scalar / (1 // 0), [y["scalar"]])
    assert torch._C._functorch.maybe_current_level() is None


def test_the_hessian_times_a_vector_is_the_product():
    x, y = variables()
    v = {name: leaf.flip(0) for name, leaf in y.items()}
    second = second_derivatives(blockwise, x, y)
    product = (second.hessian() @ ravel_blocks(v).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(product, ravel_blocks(second.hessian_product(v)))
    torch.testing.assert_close(second.products(v)[1], second.hessian_product(v))


@pytest.mark.parametrize("trace", [False, True])
def test_what_nothing_depends_on_has_zero_derivatives(trace, monkeypatch):
    x, y = variables()
    if trace:
        compiled(monkeypatch)
    (grad_x, grad_y), _ = gradients(lambda both: 0 * both[1]["scalar"].detach(), (x, y), None)
    assert all(leaf.eq(0).all() for leaf in tree_leaves((grad_x, grad_y)))
    linear = second_derivatives(lambda x, y: 3 * y["scalar"], x, y)
    assert linear.gradient["scalar"].eq(3).all()
    assert linear.hessian().shape == (3, 5, 5)
    assert all(leaf.eq(0).all() for leaf in tree_leaves((linear.hessian(), linear.products(y))))


def test_products_are_the_same_once_hessians_are_known():
    def lower(x, y, batch):
        return blockwise(x, {name: leaf.unsqueeze(0) for name, leaf in y.items()}).squeeze(0)

    x, y = variables()
    v, weights = variables()[1], torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
    at = Oracles(mmb.Problem(lower, lower, 3), x, None, y, None, None, weights)
    expected = at.products(v)
    at.hessian()
    torch.testing.assert_close(at.products(v), expected)
