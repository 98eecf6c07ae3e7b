"""What a few batches say about a problem: curvatures, noise, and the spread between blocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmb.hypergradients.conjugate_gradient import conjugate_gradient
from mmb.oracles import Oracles
from mmb.problem import Problem
from mmb.trees import (
    Tree,
    add_scaled,
    block_norm,
    norm,
    ravel_blocks,
    scale_blocks,
    tree_leaves,
    tree_map,
)

POWER_ITERATIONS = 8
SOLVER_ITERATIONS = 15
_SMALL = 32  # lower variables of a block up to which whole Hessians are looked at


@dataclass(frozen=True)
class Findings:
    """What was found.

    Attributes:
        lower_size: Lower variables of a block; 0 without lower level.
        lower_smoothness: Largest curvature of `g` in the lower variable, over the blocks looked at.
        lower_convexity: Least one, where it is known; else a tenth of the largest.
        dual_smoothness: Largest curvature of `f` in the dual; 0 without duals.
        smoothness: Largest curvature of `F` in `x`.
        indirect: The same of what passes through duals and lower variables, which follow `x` with delay.
        gradient: Norm of `grad F` at the start.
        noise: Standard deviation of an estimate of it, from batches and blocks together.
    """

    lower_size: int
    lower_smoothness: float
    lower_convexity: float
    dual_smoothness: float
    smoothness: float
    indirect: float
    gradient: float
    noise: float


Batches = tuple[Tensor, Any, Any]  # blocks, upper batch, lower batch


class Probe:
    """Looks at a problem near its start.

    Args:
        problem: The problem.
        x: Where to start.
        dual: Duals of all blocks, or None.
        lower: Lower variables of all blocks, or None.
        draws: Blocks and batches of a few steps, at least two.
        generator: Draws directions.
    """

    def __init__(
        self,
        problem: Problem,
        x: Tree,
        dual: Tree,
        lower: Tree,
        draws: list[Batches],
        generator: torch.Generator,
    ) -> None:
        self.problem, self.x, self.dual, self.lower = problem, x, dual, lower
        self.draws, self.generator = draws, generator

    @torch.no_grad()
    def look(self) -> Findings:
        """Measure everything."""
        first, *others = (self._at(draw) for draw in self.draws)
        least, largest = (0.0, 0.0) if self.lower is None else self._lower_curvature(first)
        dual_smoothness = 0.0 if self.dual is None else self._dual_curvature(first)
        size = 0 if self.lower is None else ravel_blocks(first.lower).shape[1]
        batches = [_Batch(at, dual_smoothness) for at in (first, *others)]
        gradients = [batch.gradient(self.x, batch.solve(self.x)) for batch in batches]
        mean = tree_map(lambda *parts: sum(parts) / len(parts), *gradients)
        spread = [float(norm(add_scaled(one, -1, mean))) ** 2 for one in gradients]
        solution = batches[0].solve(self.x)

        def direct(x: Tree) -> Tree:
            return batches[0].gradient(x, solution)

        def total(x: Tree) -> Tree:
            return batches[0].gradient(x, batches[0].solve(x))

        return Findings(
            lower_size=size,
            lower_smoothness=largest,
            lower_convexity=least,
            dual_smoothness=dual_smoothness,
            smoothness=self._smoothness(total),
            indirect=self._smoothness(lambda x: add_scaled(total(x), -1, direct(x))),
            gradient=float(norm(mean)),
            noise=math.sqrt(sum(spread) / (len(gradients) - 1)),
        )

    def _at(self, draw: Batches) -> Oracles:
        blocks, upper_batch, lower_batch = draw

        def pick(tree: Tree) -> Tree:
            return tree_map(lambda leaf: leaf.index_select(0, blocks.to(leaf.device)), tree)

        dual, lower = (None if tree is None else pick(tree) for tree in (self.dual, self.lower))
        return Oracles(self.problem, self.x, dual, lower, upper_batch, lower_batch)

    def _lower_curvature(self, at: Oracles) -> tuple[float, float]:
        """Least and largest curvature of `g`, over blocks."""
        if ravel_blocks(at.lower).shape[1] <= _SMALL:
            eigenvalues = torch.linalg.eigvalsh(at.hessian().double())
            least, largest = float(eigenvalues.min()), float(eigenvalues.max())
        else:
            largest = self._power(at.hessian_product, at.lower)
            least = largest / 10
        if not largest > 0 or not math.isfinite(largest):
            raise ValueError(
                f"lower: expected g strongly convex in the lower variable, got a largest curvature of "
                f"{largest:.3g}; is it differentiable twice? Add a term such as 0.5 * mu * (y ** 2).sum()"
            )
        return max(least, 1e-4 * largest), largest

    def _dual_curvature(self, at: Oracles) -> float:
        """Largest curvature of `f` in the dual, by differences of its gradient."""
        base = at.upper.grad_dual
        step = math.sqrt(torch.finfo(at.upper.values.dtype).eps)

        def product(direction: Tree) -> Tree:
            moved = Oracles(
                at.problem,
                at.x,
                add_scaled(at.dual, step, direction),
                at.lower,
                at.upper_batch,
                at.lower_batch,
            )
            return tree_map(lambda new, old: (old - new) / step, moved.upper.grad_dual, base)

        largest = self._power(product, at.dual)
        if not 0 < largest < math.inf:
            raise ValueError(
                f"upper: expected f strongly concave in the dual, got a curvature of {largest:.3g}; add a "
                "term such as -0.5 * mu * (dual ** 2).sum()"
            )
        return largest

    def _power(self, product: Callable[[Tree], Tree], like: Tree) -> float:
        """Largest eigenvalue over blocks of one symmetric matrix per block, given by its products."""
        direction = tree_map(self._normal, like)
        size = block_norm(direction)
        for _ in range(POWER_ITERATIONS):
            direction = product(scale_blocks(direction, 1 / size.clamp(min=1e-30)))
            size = block_norm(direction)
        return float(size.max())

    def _smoothness(self, gradient: Callable[[Tree], Tree]) -> float:
        """Largest curvature of a function of `x`, by differences of its gradient."""
        base, direction = gradient(self.x), tree_map(self._normal, self.x)
        step = (1 + float(norm(self.x))) * 10 * math.sqrt(torch.finfo(tree_leaves(self.x)[0].dtype).eps)
        for _ in range(POWER_ITERATIONS // 2):
            moved = add_scaled(self.x, step / max(float(norm(direction)), 1e-30), direction)
            direction = tree_map(lambda new, old: (new - old) / step, gradient(moved), base)
        return float(norm(direction))

    def _normal(self, leaf: Tensor) -> Tensor:
        return torch.randn(leaf.shape, generator=self.generator, dtype=torch.float64).to(leaf)


class _Solution(NamedTuple):
    dual: Tree
    lower: Tree
    v: Tree  # [grad_yy g]^-1 grad_y f


class _Batch:
    """`grad F` on fixed batches, with duals and lower variables brought to their solutions."""

    def __init__(self, at: Oracles, dual_smoothness: float) -> None:
        self.at, self.dual_smoothness = at, dual_smoothness

    def solve(self, x: Tree) -> _Solution:
        """Lower variables by a Newton step, duals by projected gradient steps."""
        dual, lower, v = self.at.dual, self.at.lower, None
        if lower is not None:
            here = self._moved(x, dual, lower)
            step, _ = conjugate_gradient(here, here.lower_gradient, SOLVER_ITERATIONS)
            lower = add_scaled(lower, -1, step)
        project = self.at.problem.project_dual
        for _ in range(SOLVER_ITERATIONS if dual is not None else 0):
            slope = self._moved(x, dual, lower).upper.grad_dual
            dual = add_scaled(dual, 1 / self.dual_smoothness, slope)
            dual = dual if project is None else torch.vmap(project)(dual)
        if lower is not None:
            here = self._moved(x, dual, lower)
            v, _ = conjugate_gradient(here, here.upper.grad_lower, SOLVER_ITERATIONS)
        return _Solution(dual, lower, v)

    def gradient(self, x: Tree, at: _Solution) -> Tree:
        """The mean over blocks of the hypergradient at `x`, with what was solved, perhaps elsewhere."""
        here = self._moved(x, at.dual, at.lower)
        total = here.upper.grad_x
        if at.v is not None:
            total = add_scaled(total, -1, here.products(at.v)[0])
        return tree_map(lambda leaf: leaf / len(here.upper.values), total)

    def _moved(self, x: Tree, dual: Tree, lower: Tree) -> Oracles:
        return Oracles(self.at.problem, x, dual, lower, self.at.upper_batch, self.at.lower_batch)
