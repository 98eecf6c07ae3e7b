"""Every known problem against finite differences and against the library's own derivatives."""

import pytest
import torch

import mmb
from mmb.oracles import Oracles
from mmb.problems import BilevelQuadratic, Quadratic, RobustTasks, Saddle, TopKThreshold
from mmb.trees import add_scaled, block_norm, norm, ravel_blocks, tree_leaves, tree_map

PROBLEMS = [Quadratic, Saddle, BilevelQuadratic, TopKThreshold, RobustTasks]


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(params=PROBLEMS, ids=lambda cls: cls.__name__)
def known(request):
    return request.param(4, seeded(0))


def somewhere(known):
    generator = seeded(1)
    noise = tree_map(lambda leaf: torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype), known.x0)
    return add_scaled(known.x0, 0.3, noise)


def tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if leaf is not None]


def at_solution(known, x):
    blocks = torch.arange(known.problem.num_blocks)
    return Oracles(known.problem, x, known.dual_star(x), known.lower_star(x), *known.exact(blocks))


def test_gradient_is_the_derivative_of_the_value(known):
    x, step = somewhere(known), 1e-5
    gradient = known.gradient(x)
    for seed in range(3):
        generator = seeded(seed)
        direction = tree_map(lambda leaf: torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype), x)  # noqa: B023
        ahead, behind = (
            known.value(add_scaled(x, step, direction)),
            known.value(add_scaled(x, -step, direction)),
        )
        slope = sum((g * d).sum() for g, d in zip(tree_leaves(gradient), tree_leaves(direction), strict=True))
        torch.testing.assert_close((ahead - behind) / (2 * step), slope, rtol=1e-6, atol=1e-8)


def test_lower_star_is_where_the_lower_gradient_vanishes(known):
    if known.lower0 is None:
        assert known.lower_star(known.x0) is None
        return
    assert block_norm(at_solution(known, somewhere(known)).lower_gradient).max() < 1e-10


def test_dual_star_is_the_best_dual(known):
    if known.dual0 is None:
        assert known.dual_star(known.x0) is None
        return
    at = at_solution(known, somewhere(known))
    moved = at.dual + 0.1 * at.upper.grad_dual
    project = known.problem.project_dual
    moved = moved if project is None else torch.vmap(project)(moved)
    torch.testing.assert_close(moved, at.dual, rtol=0, atol=1e-12)


def test_gradient_is_what_the_exact_estimator_gives_at_the_solution(known):
    x = somewhere(known)
    at = at_solution(known, x)
    total = at.upper.grad_x if known.lower0 is None else mmb.Exact().estimate(at, {}, None, {}).grad_x
    mean = tree_map(lambda leaf: leaf / known.problem.num_blocks, total)
    assert norm(add_scaled(mean, -1, known.gradient(x))) < 1e-9 * norm(mean)


def test_targets_of_the_estimators(known):
    if known.lower0 is None:
        return
    x = somewhere(known)
    at = at_solution(known, x)
    torch.testing.assert_close(known.hessian_star(x), at.hessian())
    product = (at.hessian() @ known.v_star(x).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(product, ravel_blocks(at.upper.grad_lower))


def test_sampled_derivatives_are_unbiased_and_their_variance_falls_with_the_batch_size(known):
    x, draws = somewhere(known), 4000
    generator = seeded(2)
    dual, lower = known.dual_star(x), known.lower_star(x)
    point = lambda tree: None if tree is None else tree[1].expand(draws, *tree[1].shape)  # noqa: E731
    blocks = torch.full((draws,), 1)

    def derivatives(batches):
        at = Oracles(known.problem, x, point(dual), point(lower), *batches)
        parts = [at.upper.grad_dual, at.upper.grad_lower]
        parts += [] if lower is None else [at.lower_gradient, at.hessian()]
        return torch.cat([ravel_blocks(part) for part in parts if part is not None], dim=1)

    exact = derivatives(known.exact(blocks))[0]
    spreads = []
    for batch_size in (2, 18):
        sampled = derivatives(known.sample(blocks, batch_size, generator))
        error = (sampled.mean(0) - exact).abs()
        assert (error < 5 * sampled.std(0) / draws**0.5 + 1e-12).all()
        spreads.append(sampled.var(0).sum())
    torch.testing.assert_close(
        spreads[0] / spreads[1], torch.tensor(9.0, dtype=exact.dtype), rtol=0.15, atol=0
    )


def test_noise_comes_from_the_passed_generator_alone(known):
    blocks = torch.tensor([2, 0])
    first, second, other = (tensors(known.batches(3, seeded(seed))(blocks)) for seed in (5, 5, 6))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("cls", PROBLEMS, ids=lambda cls: cls.__name__)
def test_single_precision(cls):
    known = cls(3, seeded(0), dtype=torch.float32)
    double = cls(3, seeded(0))
    batches = known.sample(torch.tensor([0, 2]), 2, seeded(1))
    everything = [known.x0, known.dual0, known.lower0, known.gradient(known.x0), *batches]
    assert {leaf.dtype for leaf in tensors(everything)} == {torch.float32}
    assert double.value(double.x0).dtype == torch.float64
