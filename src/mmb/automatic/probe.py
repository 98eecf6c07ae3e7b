"""What a few batches say about a problem: curvatures, noise, and the spread between blocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmb.automatic.curvature import (
    FLATTEST,
    SMALL,
    SOLVER_ITERATIONS,
    check_convex,
    largest_curvatures,
    least_curvature,
    lower_curvature,
    normal,
    power,
)
from mmb.diagnostics import Info
from mmb.dual_projection import project_dual
from mmb.hypergradients.conjugate_gradient import conjugate_gradient
from mmb.oracles import Oracles
from mmb.problem import Problem
from mmb.trees import (
    Tree,
    add_scaled,
    block_norm,
    norm,
    ravel_blocks,
    tree_leaves,
    tree_map,
)

ALIKE = 1.2  # ratio of curvatures
DIFFERENCES = 4  # of gradients, to find a curvature
SUFFICIENT = 0.1  # least share of what the gradient promises by which F falls; half where F is quadratic
DOUBLINGS = 20


@dataclass(frozen=True)
class Findings:
    """What was found.

    Attributes:
        lower_size: Lower variables of a block; 0 without lower level.
        lower_smoothness: Largest curvature of `g` in the lower variable, over the blocks looked at.
        lower_convexity: Least one; of many lower variables, about.
        dual_smoothness: Largest curvature of `f` in the dual; 0 without duals.
        dual_concavity: Least one, about.
        duals_alike: Whether all blocks looked at have about the same largest one.
        smoothness: Largest curvature of `F` in `x`; more where a step of one over it would be too long.
        indirect: The same of what passes through duals and lower variables, which follow `x` with delay.
        gradient: Norm of `grad F` at the start.
        noise: Standard deviation of an estimate of it, from batches and blocks together.
        start_error: How far from it the estimate is with duals and lower variables as they start, relative to
            it; above about 1 the first estimates say nothing.
    """

    lower_size: int
    lower_smoothness: float
    lower_convexity: float
    dual_smoothness: float
    dual_concavity: float
    duals_alike: bool
    smoothness: float
    indirect: float
    gradient: float
    noise: float
    start_error: float


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
        self.problem, self.x, self.dual, self.lower = _repeatable(problem, x), x, dual, lower
        self.draws, self.generator = draws, generator

    @torch.no_grad()
    def look(self) -> Findings:
        """Measure everything."""
        first, *others = (self._at(draw) for draw in self.draws)
        for draw, at in zip(self.draws, (first, *others), strict=True):
            _check_finite(draw, at)
        least, largest = (0.0, 0.0) if self.lower is None else lower_curvature(first, self.generator)
        dual_smoothness = 0.0 if self.dual is None else self._dual_curvature(first)
        size = 0 if self.lower is None else ravel_blocks(first.lower).shape[1]
        batches = [_Batch(at, dual_smoothness) for at in (first, *others)]
        gradients = [batch.gradient(self.x, batch.solve(self.x)) for batch in batches]
        mean = tree_map(lambda *parts: sum(parts) / len(parts), *gradients)
        spread = [float(norm(add_scaled(one, -1, mean))) ** 2 for one in gradients]
        errors = [
            float(norm(add_scaled(batch.gradient(self.x, batch.start(largest)), -1, right)))
            for batch, right in zip(batches, gradients, strict=True)
        ]
        solution = batches[0].solve(self.x)

        def direct(x: Tree) -> Tree:
            return batches[0].gradient(x, solution)

        def total(x: Tree) -> Tree:
            return batches[0].gradient(x, batches[0].solve(x))

        size_of_one = float(norm(gradients[0]))
        smoothness = self._smoothness(total, size_of_one)
        indirect = self._smoothness(lambda x: add_scaled(total(x), -1, direct(x)), size_of_one)
        if size > SMALL:
            least = least_curvature(first.hessian_product, first.lower, self.generator)
            check_convex(least, largest)
        concavity, alike = 0.0, True
        if dual_smoothness:
            concavity = least_curvature(self._dual_product(first), first.dual, self.generator)
            found = torch.cat(
                [
                    largest_curvatures(self._dual_product(at), at.dual, self.generator)
                    for at in (first, *others)
                ]
            )
            alike = float(found.max()) < ALIKE * float(found.min())
        return Findings(
            lower_size=size,
            lower_smoothness=largest,
            lower_convexity=max(least, FLATTEST * largest),
            dual_smoothness=dual_smoothness,
            dual_concavity=min(dual_smoothness, max(concavity, FLATTEST * dual_smoothness)),
            duals_alike=alike,
            smoothness=self._until_it_holds(smoothness, batches[0], gradients[0]),
            indirect=indirect,
            gradient=float(norm(mean)),
            noise=math.sqrt(sum(spread) / (len(gradients) - 1)),
            start_error=sum(errors) / max(sum(float(norm(one)) for one in gradients), 1e-300),
        )

    def _at(self, draw: Batches) -> Oracles:
        blocks, upper_batch, lower_batch = draw

        def pick(tree: Tree) -> Tree:
            return tree_map(lambda leaf: leaf.index_select(0, blocks.to(leaf.device)), tree)

        dual, lower = (None if tree is None else pick(tree) for tree in (self.dual, self.lower))
        return Oracles(self.problem, self.x, dual, lower, upper_batch, lower_batch)

    def _dual_product(self, at: Oracles) -> Callable[[Tree], Tree]:
        """Products with minus the Hessians of `f` in the dual, by differences of its gradient."""
        base = at.upper.grad_dual
        step = math.sqrt(torch.finfo(at.upper.values.dtype).eps) * (1 + float(block_norm(at.dual).max()))

        def product(direction: Tree) -> Tree:
            moved = add_scaled(at.dual, step, direction)
            there = Oracles(at.problem, at.x, moved, at.lower, at.upper_batch, at.lower_batch)
            return tree_map(lambda new, old: (old - new) / step, there.upper.grad_dual, base)

        return product

    def _dual_curvature(self, at: Oracles) -> float:
        """Largest curvature of `f` in the dual."""
        largest = power(self._dual_product(at), at.dual, self.generator)
        if not 0 < largest < math.inf:
            raise ValueError(
                f"upper: expected f strongly concave in the dual, got a curvature of {largest:.3g}; add a "
                "term such as -0.5 * mu * (dual ** 2).sum()"
            )
        return largest

    def _smoothness(self, gradient: Callable[[Tree], Tree], size: float) -> float:
        """Largest curvature of a function of `x`, by differences of its gradient; 0 if it is all rounding.

        `size` is that of what the gradient is computed from.
        """
        base, direction = gradient(self.x), normal(self.x, self.generator)
        rounding = torch.finfo(tree_leaves(self.x)[0].dtype).eps
        length, found = float(norm(self.x)), 0.0
        for _ in range(DIFFERENCES):
            reach = max(length, size / found) if found > 0 else 1 + length  # of x, whatever its unit
            step = 10 * math.sqrt(rounding) * max(reach, 1e-6 * (1 + length))
            moved = add_scaled(self.x, step / max(float(norm(direction)), 1e-30), direction)
            direction = tree_map(lambda new, old, step=step: (new - old) / step, gradient(moved), base)
            found = float(norm(direction))
        return found if found * step > 10 * rounding * size else 0.0

    def _until_it_holds(self, smoothness: float, batch: _Batch, gradient: Tree) -> float:
        """Doubled until a first step of one over it lessens `F`: near an inflection point, it says little.

        As it was if even a much shorter step does not.
        """
        value, size = batch.value(self.x), float(norm(gradient))
        for doubled in range(DOUBLINGS if smoothness > 0 else 0):
            more = 2**doubled * smoothness
            gain = value - batch.value(add_scaled(self.x, -1 / more, gradient))
            if gain >= SUFFICIENT * size**2 / more:
                return more
        return smoothness


def _repeatable(problem: Problem, x: Tree) -> Problem:
    """The problem with what `f` and `g` draw, such as dropout, the same in every call, for differences."""
    devices = list({leaf.device for leaf in tree_leaves(x) if leaf.device.type != "cpu"})

    def same_draws(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def repeatable(*arguments: Any) -> Tensor:
            with torch.random.fork_rng(devices):
                return function(*arguments)

        return repeatable

    lower = None if problem.lower is None else same_draws(problem.lower)
    return replace(problem, upper=same_draws(problem.upper), lower=lower)


def _check_finite(draw: Batches, at: Oracles) -> None:
    """Raise as a first step would if `f` or `g` or a gradient of theirs is not finite at the start."""
    blocks, upper_batch, lower_batch = draw
    values, measures = at.upper.values, {}
    if at.dual is not None:
        measures["dual_residual"] = block_norm(at.upper.grad_dual)
    if at.lower is not None:
        measures["lower_residual"] = block_norm(at.lower_gradient)
    size = norm(at.upper.grad_x)
    info = Info(0, blocks, at.upper.grad_x, torch.zeros_like(blocks), values, size, **measures)
    info.check(upper_batch=upper_batch, lower_batch=lower_batch)


class _Solution(NamedTuple):
    dual: Tree
    lower: Tree
    v: Tree  # [grad_yy g]^-1 grad_y f


class _Batch:
    """`grad F` on fixed batches, with duals and lower variables brought to their solutions."""

    def __init__(self, at: Oracles, dual_smoothness: float) -> None:
        self.at, self.dual_smoothness = at, dual_smoothness

    def start(self, lower_smoothness: float) -> _Solution:
        """What a first estimate is made with: starting values, and no more than the size of Hessians."""
        dual, lower, upper = self.at.dual, self.at.lower, self.at.upper
        v = None if lower is None else tree_map(lambda part: part / lower_smoothness, upper.grad_lower)
        return _Solution(dual, lower, v)

    def solve(self, x: Tree) -> _Solution:
        """Lower variables by a Newton step, duals by projected gradient steps."""
        dual, lower, v = self.at.dual, self.at.lower, None
        if lower is not None:
            here = self._moved(x, dual, lower)
            step, _ = conjugate_gradient(here, here.lower_gradient, SOLVER_ITERATIONS)
            lower = add_scaled(lower, -1, step)
        for _ in range(SOLVER_ITERATIONS if dual is not None else 0):
            slope = self._moved(x, dual, lower).upper.grad_dual
            dual = project_dual(self.at.problem, add_scaled(dual, 1 / self.dual_smoothness, slope))
        if lower is not None:
            here = self._moved(x, dual, lower)
            v, _ = conjugate_gradient(here, here.upper.grad_lower, SOLVER_ITERATIONS)
        return _Solution(dual, lower, v)

    def value(self, x: Tree) -> float:
        """The mean of `f` over blocks, with duals and lower variables solved at `x`."""
        solution = self.solve(x)
        return float(self._moved(x, solution.dual, solution.lower).upper.values.mean())

    def gradient(self, x: Tree, at: _Solution) -> Tree:
        """The mean over blocks of the hypergradient at `x`, with what was solved, perhaps elsewhere."""
        here = self._moved(x, at.dual, at.lower)
        total = here.upper.grad_x
        if at.v is not None:
            total = add_scaled(total, -1, here.products(at.v)[0])
        return tree_map(lambda leaf: leaf / len(here.upper.values), total)

    def _moved(self, x: Tree, dual: Tree, lower: Tree) -> Oracles:
        return Oracles(self.at.problem, x, dual, lower, self.at.upper_batch, self.at.lower_batch)
