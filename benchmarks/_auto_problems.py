"""The problems of `auto.py`: those of `mmb.problems` in many sizes, and two more with known answers."""

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

    def problem(self) -> KnownProblem:
        return self.make(self.num_blocks, torch.Generator().manual_seed(self.num_blocks))


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


def _quadratic(num_blocks: int, sampled: int, goal: float = 0.1, **options: Any) -> Case:
    return Case(partial(Quadratic, **options), num_blocks, sampled, goal=goal)


CASES: dict[str, Case] = {
    **{f"quadratic, condition {c:g}": _quadratic(10, 10, condition=c) for c in (1, 10, 100, 1e3, 1e4)},
    "quadratic, no noise": _quadratic(10, 10, 0.01, noise=0.0, hessian_noise=0.0),
    "quadratic, no noise, sampled": _quadratic(100, 10, noise=0.0, hessian_noise=0.0),
    "quadratic, noise 3": _quadratic(100, 10, noise=3.0),
    "quadratic, noise 10": _quadratic(100, 10, noise=10.0),
    "quadratic, one block": _quadratic(1, 1),
    "quadratic, one block, noise 10": _quadratic(1, 1, noise=10.0),
    "quadratic, all of 100": _quadratic(100, 100),
    "quadratic, 10 of 1,000": _quadratic(1000, 10),
    "quadratic, 10 of 10,000": _quadratic(10_000, 10),
    "quadratic, 100 of 100,000": _quadratic(100_000, 100),
    "quadratic, 1,000 of 100,000": _quadratic(100_000, 1000),
    "quadratic, float32": _quadratic(100, 10, dtype=torch.float32),
    "quadratic, float32, condition 1e3": _quadratic(10, 10, condition=1e3, dtype=torch.float32),
    "quadratic, steep": _quadratic(50, 5, curvature=30.0, sensitivity=2.0),
    "quadratic, flat": _quadratic(50, 5, curvature=0.01, pull_x=0.1, noise=0.05),
    "saddle": Case(Saddle, 50, 5),
    "saddle, one block": Case(Saddle, 1, 1),
    "saddle, 10 of 1,000, noise 3": Case(partial(Saddle, noise=3.0), 1000, 10),
    "bilevel, one block": Case(BilevelQuadratic, 1, 1),
    "bilevel, condition 100": Case(partial(BilevelQuadratic, condition=100.0), 50, 10),
    "bilevel, 60 lower variables": Case(partial(BilevelQuadratic, d_lower=60, condition=10.0), 50, 10),
    "bilevel, noise 10": Case(partial(BilevelQuadratic, noise=10.0), 50, 10),
    "thresholds": Case(TopKThreshold, 100, 10),
    "thresholds, sharp": Case(partial(TopKThreshold, share=0.05, temperature=0.1), 100, 10),
    "thresholds, 10 of 1,000": Case(TopKThreshold, 1000, 10),
    "robust tasks (nonconvex)": Case(RobustTasks, 20, 20, goal=0.2),
    "robust tasks (nonconvex), sampled": Case(RobustTasks, 100, 10, goal=0.2),
    "robust tasks (nonconvex), wide": Case(partial(RobustTasks, hidden=8, groups=5), 50, 10, goal=0.2),
    "robust ridge, 500 blocks": Case(RobustRidge, 500, 20),
    "robust ridge, one block": Case(partial(RobustRidge, groups=20), 1, 1),
    "regressions": Case(Regressions, 200, 20),
    "regressions, 40 features": Case(partial(Regressions, features=40), 50, 10),
}


def gradient_norm(known: KnownProblem, x: Any) -> float:
    """`|grad F(x)|`, infinite if it is not finite."""
    found = float(mmb.trees.norm(known.gradient(x)))
    return found if math.isfinite(found) else math.inf
