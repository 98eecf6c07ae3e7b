"""A solver that changes its step sizes while it runs, and goes back instead of diverging."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mmb.automatic.curvature import TINY, curvature_ahead, lower_curvature, newton_step
from mmb.automatic.probe import Findings
from mmb.diagnostics import BrokenStepError, Info
from mmb.dual_projection import project_dual
from mmb.hypergradients import Hypergradient, MomentumHessian
from mmb.oracles import Oracles
from mmb.problem import Problem
from mmb.solver import Solver
from mmb.state import State
from mmb.step_values import Rate, StepSizes, Update
from mmb.trees import Tree, add_scaled, blend, block_norm, gather, norm, scale_blocks, tree_leaves, tree_map
from mmb.variance_reduction.base import Samples

GAIN = 4.0  # how fast step sizes follow the agreement of estimates, relative to the weight of the newest
AGREEMENT = 0.1  # cosine below which step sizes fall: estimates that are mere noise agree by chance
HORIZON = 2.5  # the weight of the newest is at most this over the steps made: mere noise gives scales ~ 1/t
LEAP = 3.0  # how many times as long as usual a step of x may be
GROWTH = 20.0  # of the gradient estimate, since the last copy of the state, that counts as diverging
SHRINK = 0.3  # what step sizes are multiplied by after going back
RETRIES = 12
FAR = 3.0  # error of first estimates above which blocks jump to where they belong at their first visit
LONGEST = 1.5  # step size times curvature above which lower variables are about to diverge, at 2
SAFE = 0.9  # the same of the step size they get then


class AdaptiveSolver(Solver):
    r"""A `Solver` with step sizes that follow what it meets; `mmb.auto` makes it.

    Every step size is a fixed number times a scale. After step $t$ the scale of `x` changes by

    $$
    \log s \leftarrow \log s + 4\,\omega_t (\cos(\Delta, \bar\Delta) - 0.1), \qquad
    \omega_t = \min(\omega, 2.5 / t)
    $$

    with $\bar\Delta$ a moving average, with weights $3\omega_t$, of such an average of $\Delta / |\Delta|$.
    The scale grows while estimates agree with those before, and falls once they turn against them: at steps
    that are too long, where `x` swings around what follows it, and where noise is all that is left, there as
    $1/t$.
    Duals, lower variables and the estimator follow more slowly, with $\sqrt{s}$ below one, as in the theory.
    A step of `x` more than three times as long as usual is cut short, and the scale falls. If an estimate
    is not finite or has grown twentyfold, the state goes back to the last copy, which is at most half of the
    run old, and the scale falls; if estimates grow as much with shorter steps, that is the problem's nature.
    The step of a block's lower variables is shortened where `g` is too curved for it, and that of its duals
    where blocks differ in how curved `f` is. With every copy, before going back, and where gradients of `g`
    have grown threefold, the curvature of `g` is measured again: if it has become too large for the step size
    of `QuadraticSGD`, that is what falls. Where lower variables start so far away that the error of first
    estimates is three times the gradient, a block's first visit begins with a Newton step.

    Args:
        problem: The problem.
        hypergradient: As in `Solver`.
        memory: $\omega$: about one over the number of steps in which duals and lower variables follow `x`.
        largest_scale: The scale stays below.
        first_scale: The scale at the start.
        inner_steps: As in `Solver`.
        first_inner_steps: Updates in steps with a block that was never sampled before; at full step sizes if
            more than one.
        **options: Those of `Solver`; step sizes are numbers.
    """

    def __init__(
        self,
        problem: Problem,
        hypergradient: Hypergradient | None,
        *,
        memory: float,
        largest_scale: float = 2.0,
        first_scale: float = 1.0,
        inner_steps: int = 1,
        first_inner_steps: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(problem, hypergradient, inner_steps=inner_steps, **options)
        self.usual_inner_steps, self.first_inner_steps = inner_steps, first_inner_steps
        self.memory, self.largest_scale, self.first_scale = memory, largest_scale, first_scale
        self.findings: Findings | None = None
        self._copy: dict[str, Any] | None = None
        self._usual = 0.0  # size of estimates around the copy
        self._residual = 0.0  # usual size of gradients of g
        self._scale, self._shorter = first_scale, 1.0  # of the step under way
        self._first = False  # whether it has a new block

    def init(self, x0: Tree, **options: Any) -> State:
        """Make the state before the first step; see `Solver.init`."""
        state = super().init(x0, **options)
        like = tree_leaves(state.x)[0]
        scale = torch.tensor(self.first_scale, dtype=torch.float64, device=like.device)
        means = {name: tree_map(torch.zeros_like, state.x) for name in ("recent", "smooth")}
        state.shared |= {"scale": scale, "length": torch.zeros_like(scale), "means": means}
        state.shared["limit"] = torch.ones_like(scale)  # what the estimator's lr is multiplied by
        return state

    def step(
        self, state: State, blocks: Tensor, upper_batch: Any, lower_batch: Any = None, **options: Any
    ) -> Info:
        """Make one step; see `Solver.step`. The scale changes after it."""
        if self._copy is None or self._is_due(state.step):
            self._copy, self._usual = state.state_dict(), self._expected if state.step == 0 else 0.0
        self._first = self.first_inner_steps > 1 and self._any_new(state, blocks)
        self.inner_steps = self.first_inner_steps if self._first else self.usual_inner_steps
        before: dict[str, Any] = {}
        sampled = blocks, upper_batch, lower_batch
        for attempt in range(RETRIES):
            self._scale, self._shorter = (float(state.shared[name]) for name in ("scale", "limit"))
            try:
                info = super().step(state, blocks, upper_batch, lower_batch, **options)
            except BrokenStepError:
                if state.step == 0 and not before:
                    raise
                before = before or state.state_dict()
                if attempt + 1 == RETRIES:  # shorter steps do not help
                    state.load_state_dict(before)
                    raise
                self._go_back(state, self._limit(state, *sampled))
                continue
            if self._falls_behind(state.step, info) and self._limit(state, *sampled):
                self._go_back(state, True)
                continue
            size, agreement = float(norm(info.estimate)), self._agreement(state, info.estimate)
            young = state.step - self._copy["step"] <= 1 or self._usual == 0.0
            if young or size <= GROWTH * self._usual:
                self._usual = max(self._usual, size)
                self._adapt(state, info.estimate, agreement)
                if self._is_due(state.step):
                    self._limit(state, *sampled)
                return info
            self._usual = size  # with shorter steps it may be as large: then it belongs to the problem
            self._go_back(state, self._limit(state, *sampled))
        return info

    def _falls_behind(self, step: int, info: Info) -> bool:
        """Whether lower variables are much farther than usual from where they belong."""
        if info.lower_residual is None:
            return False
        size, usual = float(info.lower_residual.mean()), self._residual
        self._residual += max(0.1, 1 / step) * (size - usual)
        return size > LEAP * usual > 0

    def _any_new(self, state: State, blocks: Tensor) -> bool:
        return bool((state.last_visit[blocks.to(state.last_visit.device)] < 0).any())

    @property
    def _expected(self) -> float:
        """Size of the gradient once duals and lower variables are right: estimates may grow up to it."""
        return 0.0 if self.findings is None else self.findings.gradient

    def _is_due(self, step: int) -> bool:
        """Whether it is time for a copy: rarely, but going back never undoes more than half of a run."""
        assert self._copy is not None
        return not 0 <= step - self._copy["step"] < min(max(10, self._copy["step"]), 10 / self.memory)

    def _agreement(self, state: State, estimate: Tree) -> float:
        """Cosine of the angle between an estimate and those before."""
        smooth = state.shared["means"]["smooth"]
        pairs = zip(tree_leaves(smooth), tree_leaves(estimate), strict=True)
        product, size = sum(float((old * new).sum()) for old, new in pairs), float(norm(smooth))
        return product / (size * float(norm(estimate)) or 1.0)

    def _adapt(self, state: State, estimate: Tree, agreement: float) -> None:
        newest = min(self.memory, HORIZON / state.step)
        state.shared["scale"].mul_(math.exp(GAIN * newest * (agreement - AGREEMENT)))
        state.shared["scale"].clamp_(max=self.largest_scale)
        size = float(norm(estimate)) or 1.0
        direction = tree_map(lambda leaf: leaf / size, estimate)
        recent = blend(state.shared["means"]["recent"], direction, min(1.0, 3 * newest))
        smooth = blend(state.shared["means"]["smooth"], recent, min(1.0, 3 * newest))
        state.shared["means"] = {"recent": recent, "smooth": smooth}

    def _moved_dual(self, at: Oracles, rate: Rate) -> Tree:
        """The duals after a step, which is shortened for blocks where it would overshoot."""
        moved = super()._moved_dual(at, rate)
        if self.findings is None or self.findings.duals_alike:
            return moved
        slope = at.upper.grad_dual
        change = add_scaled(at.dual_slope_at(moved), -1, slope)
        rise = rate * block_norm(change) / block_norm(add_scaled(moved, -1, at.dual)).clamp(min=TINY)
        shorter = torch.where(rise > LONGEST, SAFE / rise, 1.0)
        return project_dual(self.problem, add_scaled(at.dual, rate, scale_blocks(slope, shorter)))

    def _lower_direction(self, at: Oracles, rate: Rate) -> Tree:
        """Gradients of `g`, shortened for blocks where the step would overshoot."""
        gradient = at.lower_gradient
        whole = isinstance(self.hypergradient, MomentumHessian)
        rise = rate * curvature_ahead(at, gradient, whole)
        return scale_blocks(gradient, torch.where(rise > LONGEST, SAFE / rise, 1.0))

    def _start(self, state: State, blocks: Tensor, batches: tuple[Any, Any]) -> tuple[Tree, Tree, Tree]:
        """As they are in the state; but new blocks are near where they belong if their start is far away."""
        dual, lower, memory = super()._start(state, blocks, batches)
        far = self.findings is not None and self.findings.start_error > FAR
        if self._first and far and lower is not None:
            new = state.last_visit.index_select(0, blocks) < 0
            at = Oracles(self.problem, state.x, dual, lower, *batches)
            lower = add_scaled(lower, -1, scale_blocks(newton_step(at), new.to(tree_leaves(lower)[0].dtype)))
        return dual, lower, memory

    def _write(self, state: State, blocks: Tensor, samples: Samples | None, update: Update) -> None:
        """Write what a step found, except for a leap of `x`: it is cut short, and the scale falls."""
        length, usual = float(norm(add_scaled(update.x, -1, state.x))), float(state.shared["length"])
        if usual == 0.0:  # no step was made
            found = self.findings
            usual = length if found is None else float(self._rates(0).x) * (found.gradient + found.noise)
        if 0 < LEAP * usual < length:
            cut = LEAP * usual / length
            update = update._replace(x=blend(state.x, update.x, cut))
            state.shared["scale"].mul_(max(cut, SHRINK))  # it may be noise
            length *= cut
        newest = min(self.memory, HORIZON / (state.step + 1))
        state.shared["length"].fill_(math.sqrt((1 - newest) * usual**2 + newest * length**2))
        super()._write(state, blocks, samples, update)

    def _go_back(self, state: State, limited: bool) -> None:
        """To the last copy, with shorter steps: of the estimator, if it was that which diverged."""
        assert self._copy is not None
        scale, limit = float(self._copy["shared"]["scale"]), float(state.shared["limit"])
        state.load_state_dict(self._copy)
        for shared in (state.shared, self._copy["shared"]):
            shared["scale"].fill_(scale if limited else SHRINK * min(self._scale, scale))
            shared["limit"].fill_(limit)

    @torch.no_grad()
    def _limit(self, state: State, blocks: Tensor, upper_batch: Any, lower_batch: Any) -> bool:
        """Shorten steps of the estimator where `g` has become too curved for them, and say so."""
        rate = super()._rates(state.step).estimator.get("lr")
        if rate is None or self.shard is not None:  # processes would not agree
            return False
        own = blocks.to(state.last_visit.device)
        dual, lower = gather(state.dual, own), gather(state.lower, own)
        at = Oracles(self.problem, state.x, dual, lower, upper_batch, lower_batch)
        try:
            _, curvature = lower_curvature(at, torch.Generator().manual_seed(state.step))
        except ValueError:  # not convex: the step that follows says where
            return False
        if rate * float(state.shared["limit"]) * curvature <= LONGEST:
            return False
        state.shared["limit"].fill_(SAFE / (rate * curvature))
        return True

    def _rates(self, step: int) -> StepSizes:
        rates = super()._rates(step)
        # Noise asks duals and lower variables to slow down with x. Without it, a lower variable that is slow
        # is what makes x swing, and would only become slower.
        noise = 1 / self.first_scale - 1  # relative to the gradient
        least = 1 / math.sqrt(1 + self.memory * noise * step)
        follow = 1.0 if self._first else min(1.0, max(least, math.sqrt(self._scale)))
        below = {
            name: rate * (self._shorter if name == "lr" else 1.0) for name, rate in rates.estimator.items()
        }
        return rates._replace(
            x=rates.x * self._scale,
            dual=rates.dual * follow,
            lower=rates.lower * follow,
            estimator={name: rate * follow for name, rate in below.items()},
        )
