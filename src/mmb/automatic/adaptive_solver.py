"""A solver that changes its step sizes while it runs, and goes back instead of diverging."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mmb.automatic.probe import Findings
from mmb.diagnostics import BrokenStepError, Info
from mmb.hypergradients import Hypergradient
from mmb.problem import Problem
from mmb.solver import Solver, StepSizes
from mmb.state import State
from mmb.trees import Tree, blend, norm, tree_leaves, tree_map

GAIN = 4.0  # how fast step sizes follow the agreement of estimates, relative to `memory`
AGREEMENT = 0.1  # cosine below which step sizes fall: estimates that are mere noise agree by chance
GROWTH = 20.0  # of the gradient estimate, since the last copy of the state, that counts as diverging
SHRINK = 0.3  # what step sizes are multiplied by after going back
RETRIES = 12


class AdaptiveSolver(Solver):
    r"""A `Solver` with step sizes that follow what it meets; `mmb.auto` makes it.

    Every step size is a fixed number times a scale. After each step the scale of `x` changes by

    $$
    \log s \leftarrow \log s + c\,\omega (\cos(\Delta, \bar\Delta) - 0.1), \qquad
    \bar\Delta \leftarrow (1-\omega)\bar\Delta + \omega\Delta
    $$

    so it grows while estimates agree with their recent mean $\bar\Delta$, and falls once they turn against
    it: at steps that are too long, and where noise is all that is left. Duals, lower variables and the
    estimator follow more slowly, with $\sqrt{s}$ below one, as in the theory; not with `inner_steps`, where
    they are to catch up with `x` at every visit. If an estimate is not finite or has grown twentyfold, the
    state goes back to the last copy and the scale falls.

    Args:
        problem: The problem.
        hypergradient: As in `Solver`.
        memory: $\omega$, the weight of the newest estimate in $\bar\Delta$: about one over the number of
            steps in which duals and lower variables follow `x`.
        largest_scale: The scale stays below.
        first_scale: The scale at the start.
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
        **options: Any,
    ) -> None:
        super().__init__(problem, hypergradient, **options)
        self.memory, self.largest_scale, self.first_scale = memory, largest_scale, first_scale
        self.findings: Findings | None = None
        self._copy: dict[str, Any] | None = None
        self._usual = 0.0  # size of estimates around the copy

    def init(self, x0: Tree, **options: Any) -> State:
        """Make the state before the first step; see `Solver.init`."""
        state = super().init(x0, **options)
        like = tree_leaves(state.x)[0]
        scale = torch.tensor(self.first_scale, dtype=torch.float64, device=like.device)
        state.shared |= {"scale": scale, "mean_estimate": tree_map(torch.zeros_like, state.x)}
        return state

    def step(self, state: State, blocks: Tensor, *batches: Any, **options: Any) -> Info:
        """Make one step; see `Solver.step`. The scale changes after it."""
        if self._copy is None or state.step % self._copy_every == 0:
            self._copy, self._usual = state.state_dict(), self._expected if state.step == 0 else 0.0
        before: dict[str, Any] = {}
        for attempt in range(RETRIES):
            self._scale = float(state.shared["scale"])
            try:
                info = super().step(state, blocks, *batches, **options)
            except BrokenStepError:
                if state.step == 0 and not before:
                    raise
                before = before or state.state_dict()
                if attempt + 1 == RETRIES:  # shorter steps do not help
                    state.load_state_dict(before)
                    raise
                self._go_back(state)
                continue
            size = float(norm(info.estimate))
            young = state.step - self._copy["step"] <= 1 or self._usual == 0.0
            if young or size <= GROWTH * self._usual:
                self._usual = max(self._usual, size)
                self._adapt(state, info.estimate)
                return info
            self._go_back(state)
        return info

    @property
    def _expected(self) -> float:
        """Size of the gradient once duals and lower variables are right: estimates may grow up to it."""
        return 0.0 if self.findings is None else self.findings.gradient

    @property
    def _copy_every(self) -> int:
        return math.ceil(10 / self.memory)

    def _adapt(self, state: State, estimate: Tree) -> None:
        mean = state.shared["mean_estimate"]
        pairs = zip(tree_leaves(mean), tree_leaves(estimate), strict=True)
        agreement = sum(float((old * new).sum()) for old, new in pairs)
        size = float(norm(mean)) * float(norm(estimate))
        change = GAIN * self.memory * (agreement / size - AGREEMENT if size > 0 else 0.0)
        state.shared["scale"].mul_(math.exp(change)).clamp_(max=self.largest_scale)
        state.shared["mean_estimate"] = blend(mean, estimate, self.memory)

    def _go_back(self, state: State) -> None:
        assert self._copy is not None
        scale = SHRINK * min(float(state.shared["scale"]), float(self._copy["shared"]["scale"]))
        state.load_state_dict(self._copy)
        state.shared["scale"].fill_(scale)
        self._copy["shared"]["scale"].fill_(scale)

    def _rates(self, step: int) -> StepSizes:
        rates = super()._rates(step)
        catching_up = self.inner_steps > 1
        follow = 1.0 if catching_up else min(1.0, math.sqrt(self._scale))
        return rates._replace(
            x=rates.x * self._scale,
            dual=rates.dual * follow,
            lower=rates.lower * follow,
            estimator={name: rate * follow for name, rate in rates.estimator.items()},
        )
