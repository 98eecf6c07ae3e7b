"""Noisy quadratics with closed-form solutions: the whole problem, and its two limits."""

import math
from typing import Any

import torch
from torch import Tensor

from mmb._numbers import as_number, check_nonnegative, check_positive, check_sizes
from mmb.known_problem import KnownProblem
from mmb.problem import Problem
from mmb.theory.constants import Constants
from mmb.trees import gather


def upper(x: Tensor, dual: Tensor | None, lower: Tensor | None, batch: dict[str, Tensor]) -> Tensor:
    """`f` of one block: coefficients and noise come with the batch; see `Quadratic`."""
    away = x - batch["center"]
    value = 0.5 * away @ batch["curvature"] @ away + batch["noise_x"] @ x
    if lower is not None:
        miss = lower - batch["target"]
        value = value + 0.5 * batch["weight"] * miss @ miss + batch["noise_lower"] @ lower
    if dual is not None:
        pull = batch["pull_x"] @ x - batch["offset"] + batch["noise_dual"]
        pull = pull if lower is None else pull + batch["pull_lower"] @ lower
        value = value + dual @ pull - 0.5 * batch["concavity"] * dual @ dual
    return value


def lower(x: Tensor, lower: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """`g` of one block; see `Quadratic`."""
    away = lower - batch["map"] @ x - batch["start"]
    return 0.5 * (1 + batch["noise_hessian"]) * away @ batch["hessian"] @ away + batch["noise_lower"] @ away


class Quadratic(KnownProblem):
    r"""The noisy multi-block min-max bilevel quadratic.

    $$
    f_i &= \tfrac12 (x-c_i)' Q_i (x-c_i) + \tfrac{k}{2} |y-w_i|^2 \\
    &\quad + \alpha'(R_i x + S_i y - t_i) - \tfrac{\mu_f}{2} |\alpha|^2 \\
    g_i &= \tfrac12 (y - P_i x - q_i)' A_i (y - P_i x - q_i)
    $$

    so that $y_i(x) = P_i x + q_i$, $\alpha_i(x) = (R_i x + S_i y_i(x) - t_i)/\mu_f$, and
    $\nabla F$ is affine. Noise is what a mean over `B` samples leaves: the linear terms in
    `x`, `alpha` and `y` are disturbed by centered normal vectors of variance `noise^2 / B` (in all
    entries together), and $A_i$ is multiplied by `1 + e` with uniform `e`, bounded by
    `hessian_noise / sqrt(B)`; so batches keep the Hessian positive definite.

    Args:
        num_blocks: `m`.
        generator: Draws the coefficients; everything lives on its device.
        d_x: Size of `x`.
        d_dual: Size of one dual; None for a problem without duals.
        d_lower: Size of one lower variable; None for a problem without lower level.
        mu_f: Strong concavity in the dual.
        mu_g: Least eigenvalue of every `A_i`.
        condition: Largest over least eigenvalue of every `A_i`.
        curvature: Largest eigenvalue of every `Q_i` (the least is half of it), and the weight `k`.
        pull_x: Every singular value of every `R_i`.
        pull_lower: Likewise of `S_i`.
        sensitivity: Likewise of `P_i`.
        spread: Standard deviation of the entries of `c_i, w_i, t_i, q_i`; at 0 all solutions are 0.
        noise: Standard deviation of the noise at `B = 1`.
        hessian_noise: Largest relative disturbance of `A_i`, below 1.
        dtype: Of all tensors.
    """

    x_star: Tensor

    def __init__(
        self,
        num_blocks: int,
        generator: torch.Generator,
        *,
        d_x: int = 10,
        d_dual: int | None = 3,
        d_lower: int | None = 5,
        mu_f: float = 1.0,
        mu_g: float = 0.5,
        condition: float = 2.0,
        curvature: float = 1.0,
        pull_x: float = 0.5,
        pull_lower: float = 0.5,
        sensitivity: float = 0.5,
        spread: float = 1.0,
        noise: float = 0.5,
        hessian_noise: float = 0.2,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        if d_dual is None and d_lower is None:
            raise ValueError("d_dual, d_lower: expected at least one of them, got None for both")
        if not 0 <= as_number(hessian_noise) < 1:
            raise ValueError(f"hessian_noise: expected a number in [0, 1), got {hessian_noise!r}")
        if not 1 <= as_number(condition) < math.inf:
            raise ValueError(f"condition: expected a finite number of at least 1, got {condition!r}")
        check_sizes(num_blocks=num_blocks, d_x=d_x, d_dual=d_dual, d_lower=d_lower)
        check_positive(mu_f=mu_f, mu_g=mu_g)
        check_nonnegative(curvature=curvature, pull_x=pull_x, pull_lower=pull_lower, sensitivity=sensitivity)
        check_nonnegative(spread=spread, noise=noise)
        m = num_blocks
        self.noise, self.hessian_noise, self.mu_f, self.mu_g = noise, hessian_noise, mu_f, mu_g
        self.condition, self.curvature = condition, curvature

        def normal(*shape: int) -> Tensor:
            return torch.randn(m, *shape, generator=generator, dtype=dtype, device=generator.device)

        def full(number: float) -> Tensor:
            return torch.full((m,), number, dtype=dtype, device=generator.device)

        def positive(size: int, least: float, largest: float) -> Tensor:
            basis: Tensor = torch.linalg.qr(normal(size, size)).Q
            eigenvalues = torch.linspace(least, largest, size, dtype=dtype, device=generator.device)
            return basis * eigenvalues @ basis.mT

        def of_norm(norm: float, rows: int, columns: int) -> Tensor:
            basis: Tensor = torch.linalg.qr(normal(max(rows, columns), min(rows, columns))).Q
            return norm * (basis if rows >= columns else basis.mT)

        self._upper = {"center": spread * normal(d_x), "curvature": positive(d_x, curvature / 2, curvature)}
        self._lower: dict[str, Tensor] = {}
        if d_dual is not None:
            self._upper |= {
                "pull_x": of_norm(pull_x, d_dual, d_x),
                "offset": spread * normal(d_dual),
                "concavity": full(mu_f),
            }
        if d_lower is not None:
            self._upper |= {"target": spread * normal(d_lower), "weight": full(curvature)}
            self._lower = {
                "hessian": positive(d_lower, mu_g, mu_g * condition),
                "map": of_norm(sensitivity, d_lower, d_x),
                "start": spread * normal(d_lower),
            }
            if d_dual is not None:
                self._upper["pull_lower"] = of_norm(pull_lower, d_dual, d_lower)
        self.problem = Problem(upper, None if d_lower is None else lower, m)
        self.x0 = torch.ones_like(self._upper["center"][0])
        self.dual0 = None if d_dual is None else torch.zeros_like(self._upper["offset"])
        self.lower0 = None if d_lower is None else torch.zeros_like(self._upper["target"])
        sizes = {"noise_x": d_x, "noise_dual": d_dual, "noise_lower": d_lower, "noise_of_g": d_lower}
        self._sizes = {name: size for name, size in sizes.items() if size is not None}
        scales = [noise / math.sqrt(size) for size in self._sizes.values() for _ in range(size)]
        self._scales = torch.tensor(scales, dtype=dtype, device=generator.device)
        self.second_derivative, self._slope = self._affine_gradient()
        self.x_star = torch.linalg.solve(self.second_derivative, -self._slope)

    def sample(self, blocks: Tensor, batch_size: int, generator: torch.Generator) -> tuple[Any, Any]:
        """Coefficients of the blocks with fresh noise; see the base class."""
        linear = self._no_noise(blocks).normal_(generator=generator) * (self._scales / math.sqrt(batch_size))
        relative = self._no_noise(blocks)[:, 0].uniform_(-1, 1, generator=generator)
        return self._batches(blocks, linear, relative * (self.hessian_noise / math.sqrt(batch_size)))

    def exact(self, blocks: Tensor) -> tuple[Any, Any]:
        """Coefficients of the blocks with zero noise; see the base class."""
        zeros = self._no_noise(blocks)
        return self._batches(blocks, zeros, zeros[:, 0])

    def _no_noise(self, blocks: Tensor) -> Tensor:
        return self._scales.new_zeros(len(blocks), len(self._scales))

    def _batches(self, blocks: Tensor, linear: Tensor, relative: Tensor) -> tuple[Any, Any]:
        """Coefficients with the given noise of the linear terms and of the Hessian."""
        blocks = blocks.to(self.device)
        parts = torch.split(linear, list(self._sizes.values()), dim=1)
        noise = dict(zip(self._sizes, parts, strict=True))
        if self.lower0 is None:
            return gather(self._upper, blocks) | noise, None
        lower_batch = {"noise_lower": noise.pop("noise_of_g"), "noise_hessian": relative}
        return gather(self._upper, blocks) | noise, gather(self._lower, blocks) | lower_batch

    def lower_star(self, x: Tensor) -> Tensor | None:
        """`P_i x + q_i`."""
        return None if self.lower0 is None else self._lower["map"] @ x + self._lower["start"]

    def dual_star(self, x: Tensor) -> Tensor | None:
        """`(R_i x + S_i y_i(x) - t_i) / mu_f`."""
        if self.dual0 is None:
            return None
        pull = self._upper["pull_x"] @ x - self._upper["offset"]
        y = self.lower_star(x)
        if y is not None:
            pull = pull + (self._upper["pull_lower"] @ y.unsqueeze(-1)).squeeze(-1)
        return pull / self.mu_f

    def gradient(self, x: Tensor) -> Tensor:
        """`grad F(x)`, affine in `x`."""
        return self.second_derivative @ x + self._slope

    def hessian_star(self, x: Tensor) -> Tensor:
        """`A_i`, wherever `x` is."""
        return self._lower["hessian"]

    def constants(self, radius: float) -> Constants:
        r"""Constants of the assumptions, valid within `radius` of the solution.

        A quadratic is not globally Lipschitz and its noise grows with the distance from `y_i(x)`, so the
        bound on the gradients of `f` and on the noise hold where
        $|(x, \alpha_i, y_i) - (x^*, \alpha_i^*, y_i^*)| \le$ `radius` for every block; the others
        hold everywhere.

        Args:
            radius: How far a run may go.

        Returns:
            The constants, for a problem that has both duals and a lower level.

        Raises:
            ValueError: If the problem has no duals or no lower level.
        """
        if self.dual0 is None or self.lower0 is None:
            raise ValueError(
                "the constants are of problems with both duals and a lower level; one is missing"
            )
        low = self._lower
        dual, y = self.dual_star(self.x_star), self.lower_star(self.x_star)
        assert dual is not None
        assert y is not None
        x = self.x_star.expand(len(y), -1)
        upper_batch, lower_batch = self.exact(self._all())

        def f(joint: tuple[Tensor, Tensor, Tensor], batch: dict[str, Tensor]) -> Tensor:
            return upper(*joint, batch)

        def g(joint: tuple[Tensor, Tensor], batch: dict[str, Tensor]) -> Tensor:
            return lower(*joint, batch)

        grad_x, _, grad_y = torch.vmap(torch.func.grad(f))((x, dual, y), upper_batch)
        second_f = torch.vmap(torch.func.jacrev(torch.func.grad(f)))((x, dual, y), upper_batch)
        second_g = torch.vmap(torch.func.jacrev(torch.func.grad(g)))((x, y), lower_batch)
        smoothness_upper, smoothness_lower = (
            _norm(torch.cat([torch.cat(row, dim=2) for row in second], dim=1))
            for second in (second_f, second_g)
        )
        cross = second_g[0][1]
        slope = max(float(part.norm(dim=1).max()) for part in (grad_x, grad_y))
        disturbance = self.hessian_noise / math.sqrt(3)  # standard deviation of e
        away = (1 + _norm(low["map"])) * radius  # |y - y_i(x)| within the region
        largest = self.mu_g * self.condition
        return Constants(
            strong_concavity=self.mu_f,
            strong_convexity=self.mu_g * (1 - self.hessian_noise),
            smoothness_upper=smoothness_upper,
            smoothness_lower=smoothness_lower,
            lipschitz_upper=slope + smoothness_upper * radius,
            cross_bound=_norm(cross),
            lipschitz_cross=0.0,
            lipschitz_hessian=0.0,
            noise=max(
                math.hypot(self.noise, disturbance * largest * away),
                disturbance * float(torch.linalg.matrix_norm(low["hessian"]).max()),
                disturbance * float(torch.linalg.matrix_norm(cross).max()),
            ),
        )

    def _affine_gradient(self) -> tuple[Tensor, Tensor]:
        """`M` and `b` of `grad F(x) = M x + b`."""
        up, low = self._upper, self._lower
        second = up["curvature"]
        slope = -(second @ up["center"].unsqueeze(-1))
        if self.lower0 is not None:
            second = second + self.curvature * low["map"].mT @ low["map"]
            slope = slope + self.curvature * low["map"].mT @ (low["start"] - up["target"]).unsqueeze(-1)
        if self.dual0 is not None:
            pull, offset = up["pull_x"], -up["offset"].unsqueeze(-1)
            if self.lower0 is not None:
                pull = pull + up["pull_lower"] @ low["map"]
                offset = offset + up["pull_lower"] @ low["start"].unsqueeze(-1)
            second = second + pull.mT @ pull / self.mu_f
            slope = slope + pull.mT @ offset / self.mu_f
        return second.mean(0), slope.mean(0).squeeze(-1)


class Saddle(Quadratic):
    r"""Multi-block min-max quadratic.

    $$
    \min_x \max_\alpha \frac1m\sum_i f_i(x, \alpha_i)
    $$

    $$
    f_i = \tfrac12 (x-c_i)' Q_i (x-c_i) + \alpha'(R_i x - t_i) - \tfrac{\mu_f}{2} |\alpha|^2
    $$

    Args:
        num_blocks: `m`; one block gives the problem of primal-dual stochastic momentum (PDSM).
        generator: Draws the coefficients.
        **options: Those of [`Quadratic`][mmb.problems.Quadratic] that do not concern the lower level.
    """

    def __init__(self, num_blocks: int, generator: torch.Generator, **options: Any) -> None:
        super().__init__(num_blocks, generator, d_lower=None, **options)


class BilevelQuadratic(Quadratic):
    r"""Multi-block bilevel quadratic.

    $$
    \min_x \frac1m\sum_i f_i(x, y_i(x)), \qquad y_i(x) = \arg\min_y g_i(x, y)
    $$

    $$
    f_i = \tfrac12 (x-c_i)' Q_i (x-c_i) + \tfrac{k}{2} |y-w_i|^2, \qquad
    g_i = \tfrac12 (y - P_i x - q_i)' A_i (y - P_i x - q_i)
    $$

    Args:
        num_blocks: `m`; one block gives the problem of stochastic momentum bilevel (SMB).
        generator: Draws the coefficients.
        **options: Those of [`Quadratic`][mmb.problems.Quadratic] that do not concern the duals.
    """

    def __init__(self, num_blocks: int, generator: torch.Generator, **options: Any) -> None:
        super().__init__(num_blocks, generator, d_dual=None, **options)


def _norm(matrices: Tensor) -> float:
    """Largest spectral norm."""
    return float(torch.linalg.matrix_norm(matrices, ord=2).max())
