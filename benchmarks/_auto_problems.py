"""The problems of `auto.py`, drawn by seed: those of `mmb.problems`, and two more with known answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import mmb
from mmb.problems import (
    BilevelQuadratic,
    KnownProblem,
    Quadratic,
    RobustTasks,
    Saddle,
    TopKThreshold,
)
from mmb.trees import gather


@dataclass(frozen=True)
class Case:
    """A problem, how it is sampled, and when it counts as solved."""

    make: Callable[[int, torch.Generator], KnownProblem]
    num_blocks: int
    blocks_per_step: int
    batch_size: int = 16
    goal: float = 0.1  # of the gradient norm at the start
    seed: int = 0

    def problem(self) -> KnownProblem:
        return self.make(self.num_blocks, torch.Generator().manual_seed(self.seed + self.num_blocks))


class _Rows(KnownProblem):
    """Batches are rows of tensors [m, rows, ...], drawn with replacement."""

    rows: dict[str, Tensor]
    lower_rows: dict[str, Tensor] | None = None

    def sample(self, blocks: Tensor, batch_size: int, generator: torch.Generator) -> tuple[Any, Any]:
        def draw(data: dict[str, Tensor]) -> dict[str, Tensor]:
            size = data["targets"].shape[-1]
            rows = torch.randint(size, (len(blocks), batch_size), generator=generator)
            block = blocks.unsqueeze(1)
            if data["targets"].ndim == 2:
                return {name: leaf[block, rows] for name, leaf in data.items()}
            return {
                name: leaf[block, :, rows].transpose(1, 2) for name, leaf in data.items()
            }  # groups of rows

        return draw(self.rows), None if self.lower_rows is None else draw(self.lower_rows)

    def exact(self, blocks: Tensor) -> tuple[Any, Any]:
        return gather(self.rows, blocks), None if self.lower_rows is None else gather(self.lower_rows, blocks)


class RobustRidge(_Rows):
    """Ridge regressions that share their weights, each judged by the worst mixture of its groups of rows.

    f_i(x, a) = sum_g a_g 1/2 mean_g (x'input - target)^2 + ridge/2 |x|^2 - mu/2 |a - 1/G|^2, a on a simplex.
    """

    def __init__(
        self, num_blocks: int, generator: torch.Generator, *, groups: int = 4, d_x: int = 10
    ) -> None:
        self.groups, self.ridge, self.mu = groups, 0.1, 0.5

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        inputs = normal(num_blocks, groups, 40, d_x)
        weights = normal(d_x) + 0.3 * normal(num_blocks, groups, 1, d_x)
        targets = (inputs * weights).sum(-1) + 0.5 * normal(num_blocks, groups, 40)
        self.rows = {"inputs": inputs, "targets": targets}
        self.problem = mmb.Problem(self._upper, None, num_blocks, mmb.projections.simplex())
        self.x0 = torch.zeros(d_x, dtype=torch.float64)
        self.dual0 = torch.full((num_blocks, groups), 1 / groups, dtype=torch.float64)
        self.lower0 = None

    def _losses(self, x: Tensor, batch: dict[str, Tensor]) -> Tensor:
        return 0.5 * (batch["inputs"] @ x - batch["targets"]).square().mean(-1)

    def _upper(self, x: Tensor, dual: Tensor, lower: None, batch: dict[str, Tensor]) -> Tensor:
        away = dual - 1 / self.groups
        return dual @ self._losses(x, batch) + 0.5 * self.ridge * x @ x - 0.5 * self.mu * away @ away

    def lower_star(self, x: Tensor) -> None:
        return None

    def dual_star(self, x: Tensor) -> Tensor:
        return torch.vmap(mmb.projections.simplex())(1 / self.groups + self._losses(x, self.rows) / self.mu)


class Regressions(_Rows):
    """A penalty per feature for many ridge regressions, chosen by their validation errors: no duals."""

    def __init__(self, num_blocks: int, generator: torch.Generator, *, features: int = 10) -> None:
        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        weights = normal(num_blocks, 1, features) * (torch.arange(features) < features // 3)

        def data(rows: int) -> dict[str, Tensor]:
            inputs = normal(num_blocks, rows, features)
            return {"inputs": inputs, "targets": (inputs * weights).sum(-1) + normal(num_blocks, rows)}

        self.rows, self.lower_rows = data(2 * features), data(2 * features)
        self.problem = mmb.Problem(self._upper, self._lower, num_blocks)
        self.x0 = torch.zeros(features, dtype=torch.float64)
        self.dual0 = None
        self.lower0 = torch.zeros(num_blocks, features, dtype=torch.float64)

    def _upper(self, x: Tensor, dual: None, weights: Tensor, batch: dict[str, Tensor]) -> Tensor:
        decay = 0.01 * x @ x  # keeps x where penalties still change
        return 0.5 * (batch["inputs"] @ weights - batch["targets"]).square().mean() + decay

    def _lower(self, x: Tensor, weights: Tensor, batch: dict[str, Tensor]) -> Tensor:
        error = (batch["inputs"] @ weights - batch["targets"]).square().mean()
        return 0.5 * (error + (3 * torch.sigmoid(x) * weights.square()).sum())

    def lower_star(self, x: Tensor) -> Tensor:
        assert self.lower_rows is not None
        inputs, targets = self.lower_rows["inputs"], self.lower_rows["targets"]
        gram = inputs.mT @ inputs / inputs.shape[1] + torch.diag(3 * torch.sigmoid(x))
        return torch.linalg.solve(gram, (inputs * targets.unsqueeze(-1)).mean(1))

    def dual_star(self, x: Tensor) -> None:
        return None


def _uniform(generator: torch.Generator, low: float, high: float) -> float:
    return low + (high - low) * float(torch.rand((), generator=generator))


def _between(generator: torch.Generator, low: float, high: float) -> float:
    """A number between two, uniform in its logarithm."""
    return math.exp(_uniform(generator, math.log(low), math.log(high)))


def _whole(generator: torch.Generator, low: float, high: float) -> int:
    return round(_between(generator, low, high))


Made = tuple[Callable[[int, torch.Generator], KnownProblem], dict[str, Any]]


def _quadratic(draw: torch.Generator) -> Made:
    return Quadratic, {
        "d_x": _whole(draw, 3, 20),
        "d_lower": _whole(draw, 2, 8),
        "curvature": _between(draw, 0.03, 10),
        "condition": _between(draw, 1, 30),
        "noise": _between(draw, 0.1, 3),
    }


def _conditioned(draw: torch.Generator) -> Made:
    return Quadratic, {"condition": _between(draw, 100, 1e4), "d_x": _whole(draw, 3, 10)}


def _noisy(draw: torch.Generator) -> Made:
    return Quadratic, {"noise": _uniform(draw, 3, 10), "hessian_noise": _uniform(draw, 0.0, 0.3)}


def _exact(draw: torch.Generator) -> Made:
    return Quadratic, {"noise": 0.0, "hessian_noise": 0.0, "condition": _between(draw, 1, 30)}


def _single(draw: torch.Generator) -> Made:
    options = {"condition": _between(draw, 1, 30), "sensitivity": _between(draw, 0.3, 2)}
    return Quadratic, {**options, "dtype": torch.float32}


def _saddle(draw: torch.Generator) -> Made:
    return Saddle, {"noise": _between(draw, 0.1, 5)}


def _bilevel(draw: torch.Generator) -> Made:
    return BilevelQuadratic, {"condition": _between(draw, 1, 100), "noise": _between(draw, 0.1, 5)}


def _wide(draw: torch.Generator) -> Made:
    return BilevelQuadratic, {"d_lower": _whole(draw, 33, 80), "condition": _between(draw, 1, 30)}


def _thresholds(draw: torch.Generator) -> Made:
    return TopKThreshold, {"share": _between(draw, 0.05, 0.3), "temperature": _between(draw, 0.1, 1)}


def _nonconvex(draw: torch.Generator) -> Made:
    return RobustTasks, {"hidden": _whole(draw, 3, 8), "groups": _whole(draw, 2, 5)}


def _ridge(draw: torch.Generator) -> Made:
    return RobustRidge, {"groups": _whole(draw, 3, 20), "d_x": _whole(draw, 5, 20)}


def _regressions(draw: torch.Generator) -> Made:
    return Regressions, {"features": _whole(draw, 8, 40)}


FAMILIES: dict[str, tuple[Callable[[torch.Generator], Made], list[tuple[int, int]], float]] = {
    # how options are drawn; numbers of blocks and how many of them in a step; the goal
    "quadratic": (_quadratic, [(1, 1), (10, 10), (100, 10), (1000, 10), (10_000, 10), (100_000, 100)], 0.1),
    "quadratic, ill-conditioned": (_conditioned, [(1, 1), (10, 10), (50, 10)], 0.1),
    "quadratic, noisy": (_noisy, [(1, 1), (100, 10), (1000, 100)], 0.1),
    "quadratic, exact": (_exact, [(10, 10), (100, 10), (1000, 100)], 0.05),
    "quadratic, float32": (_single, [(10, 10), (100, 10), (1000, 100)], 0.1),
    "saddle": (_saddle, [(1, 1), (50, 5), (1000, 10)], 0.1),
    "bilevel": (_bilevel, [(1, 1), (50, 10), (500, 50)], 0.1),
    "bilevel, many lower variables": (_wide, [(10, 10), (50, 10)], 0.1),
    "thresholds": (_thresholds, [(100, 10), (1000, 10)], 0.1),
    "nonconvex": (_nonconvex, [(20, 20), (100, 10)], 0.2),
    "robust ridge": (_ridge, [(1, 1), (500, 20)], 0.1),
    "regressions": (_regressions, [(50, 10), (200, 20)], 0.1),
}


def draw_cases(seed: int) -> dict[str, Case]:
    """The bank of a seed: every family in all its sizes, with newly drawn options."""
    draw, cases = torch.Generator().manual_seed(seed), {}
    for family, (options_of, sizes, goal) in FAMILIES.items():
        for num_blocks, sampled in sizes:
            make, options = options_of(draw)
            own = [
                f"{name} {value:.3g}" for name, value in options.items() if not isinstance(value, torch.dtype)
            ]
            name = f"{family}, {sampled:,} of {num_blocks:,}: {', '.join(own)}"
            cases[name] = Case(partial(make, **options), num_blocks, sampled, goal=goal, seed=seed)
    return cases


def gradient_norm(known: KnownProblem, x: Any) -> float:
    """`|grad F(x)|`, infinite if it is not finite."""
    found = float(mmb.trees.norm(known.gradient(x)))
    return found if math.isfinite(found) else math.inf
