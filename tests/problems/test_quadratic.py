"""Closed forms and constants of the noisy quadratics."""

import itertools

import pytest
import torch

from mmb.oracles import Oracles
from mmb.problems import BilevelQuadratic, Quadratic, Saddle


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("cls", [Quadratic, Saddle, BilevelQuadratic])
@pytest.mark.parametrize("m", [1, 7])
def test_x_star_is_the_minimizer(cls, m):
    known = cls(m, seeded(m))
    assert known.gradient(known.x_star).norm() < 1e-12
    best = known.value(known.x_star)
    for seed in range(5):
        step = torch.randn(known.x_star.shape, generator=seeded(seed), dtype=torch.float64)
        assert known.value(known.x_star + 0.1 * step) > best


def test_limits_have_no_lower_level_and_no_duals():
    saddle, bilevel = Saddle(3, seeded(0)), BilevelQuadratic(3, seeded(0))
    assert saddle.problem.lower is None
    assert saddle.lower0 is None
    assert bilevel.dual0 is None
    for known in (saddle, bilevel):
        with pytest.raises(ValueError, match=r"duals.*lower level"):
            known.constants(1.0)


def test_one_level_is_needed_and_batches_must_stay_convex():
    with pytest.raises(ValueError, match="d_dual, d_lower"):
        Quadratic(3, seeded(0), d_dual=None, d_lower=None)
    with pytest.raises(ValueError, match="hessian_noise"):
        Quadratic(3, seeded(0), hessian_noise=1.0)


def test_constants_hold_at_random_points_of_the_region():
    radius, draws, batch_size = 0.7, 3000, 2
    known = Quadratic(3, seeded(0), mu_f=0.6, noise=0.3)
    constants = known.constants(radius)
    generator = seeded(1)
    x_star, dual_star, lower_star = (
        known.x_star,
        known.dual_star(known.x_star),
        known.lower_star(known.x_star),
    )
    sizes = [x_star.numel(), dual_star.shape[1], lower_star.shape[1]]
    blocks = torch.arange(3)
    points = []
    for _ in range(20):
        away = torch.randn(3, sum(sizes), generator=generator, dtype=torch.float64)
        away = radius * away / away.norm(dim=1, keepdim=True)
        x_away = away[0, : sizes[0]]  # x is shared: all blocks take the first one's
        points.append(
            (x_star + x_away, dual_star + away[:, sizes[0] : -sizes[2]], lower_star + away[:, -sizes[2] :])
        )

    def gradients(x, dual, lower, batches, at):
        one = Oracles(known.problem, x, dual[at : at + 1], lower[at : at + 1], *batches)
        upper = one.upper
        first = torch.cat([upper.grad_x, upper.grad_dual[0], upper.grad_lower[0]])
        return first, torch.cat([one.lower_first.grad_x, one.lower_first.grad_lower[0]]), upper

    exact = [known.exact(blocks[i : i + 1]) for i in range(3)]
    for before, after in itertools.pairwise(points):
        for i in range(3):
            f0, g0, upper = gradients(*before, exact[i], i)
            f1, g1, _ = gradients(*after, exact[i], i)
            moved = [a[i] - b[i] if a.ndim > 1 else a - b for a, b in zip(after, before, strict=True)]
            distance = torch.cat(moved).norm()
            assert (f1 - f0).norm() <= constants.smoothness_upper * distance * (1 + 1e-9)
            g_distance = torch.cat([moved[0], moved[2]]).norm()
            assert (g1 - g0).norm() <= constants.smoothness_lower * g_distance * (1 + 1e-9)
            assert upper.grad_x.norm() <= constants.lipschitz_upper
            assert upper.grad_lower.norm() <= constants.lipschitz_upper

    # Noise at one block and point: the variance of every oracle is within sigma^2 / B, and convexity holds.
    x, dual, lower = points[0]
    many = torch.zeros(draws, dtype=torch.long)
    at = Oracles(
        known.problem,
        x,
        dual[:1].expand(draws, -1),
        lower[:1].expand(draws, -1),
        *known.sample(many, batch_size, generator),
    )
    limit = constants.noise**2 / batch_size
    hessian = at.hessian()
    for part in (at.upper.grad_dual, at.upper.grad_lower, at.lower_gradient, hessian.flatten(1)):
        assert part.var(0).sum() <= 1.1 * limit
    assert at.upper_batch["noise_x"].var(0).sum() <= 1.1 * limit  # the noise of grad_x f
    assert torch.linalg.eigvalsh(hessian).min() >= constants.strong_convexity


def test_constants_are_attained_where_they_can_be():
    known = Quadratic(2, seeded(0), mu_f=0.6, mu_g=0.5, condition=3.0, sensitivity=0.4, hessian_noise=0.0)
    constants = known.constants(0.0)
    assert constants.strong_concavity == 0.6
    assert constants.strong_convexity == 0.5
    assert constants.cross_bound <= 0.4 * 1.5 + 1e-12
    x = known.x_star
    at = Oracles(known.problem, x, known.dual_star(x), known.lower_star(x), *known.exact(torch.arange(2)))
    assert at.upper.grad_lower.norm(dim=1).max() <= constants.lipschitz_upper + 1e-12
    assert constants.noise == known.noise
