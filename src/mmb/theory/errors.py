"""The error sequences of the lemmas, measured along a run of a problem with known answers."""

import math

import torch

from mmb.diagnostics import Info
from mmb.known_problem import KnownProblem
from mmb.state import State
from mmb.theory.constants import Start
from mmb.trees import Tree, add_scaled, norm, ravel_blocks, tree_map


class ErrorSequences:
    r"""Callback for `mmb.solve` that measures how far a run is from what it tracks.

    After step `t` it records, every `every` steps,

    * `"gradient"`: $|\nabla F(x_t)|^2$
    * `"tracking"`: $|\nabla F(x_t) - z_{t+1}|^2$
    * `"z"`: $|z_{t+1}|^2$
    * `"dual"`: $\delta_\alpha = \sum_i |\alpha_i - \alpha_i(x)|^2$ at $x_{t+1}$
    * `"lower"`: $\delta_y = \sum_i |y_i - y_i(x)|^2$ at $x_{t+1}$
    * `"estimator"`: $\delta_{gyy} = \sum_i |s_i - \nabla_{yy}g_i(x, y_i(x))|_F^2$ if the estimator
      tracks Hessians, $\delta_v = \sum_i |v_i - v_i(x)|^2$ if it tracks `v`, at $x_{t+1}$

    each if it exists. Needs the built-in moving average (a state with `z`).

    Args:
        known: The problem.
        state: The state before the first step; errors at the start are measured from it.
        every: Steps between measurements.

    Attributes:
        start: Errors at the start, as `mmb.theory.Theorem.parameters` takes them; the value gap NaN without
            `x_star`.
        sequences: The recorded numbers by name.
        distance: Largest distance, over blocks and measurements, of $(x, \alpha_i, y_i)$ from the
            solution; NaN without `x_star`. Constants that hold up to a distance hold for the run if this is
            at most that.
    """

    def __init__(self, known: KnownProblem, state: State, every: int = 1) -> None:
        if state.z is None:
            raise ValueError("state: expected one with z, that is a solver with lr instead of an optimizer")
        if every < 1:
            raise ValueError(f"every: expected at least 1, got {every}")
        self.known, self.every = known, every
        self.sequences: dict[str, list[float]] = {}
        self._before = tree_map(torch.clone, state.x)
        self._solution = (
            None
            if known.x_star is None
            else (known.x_star, known.dual_star(known.x_star), known.lower_star(known.x_star))
        )
        errors = self._block_errors(state)
        best = None if known.x_star is None else known.value(known.x_star)
        gap = (
            math.nan if best is None else max(0.0, float(known.value(state.x) - best))
        )  # rounding may make it negative
        self.distance = self._distance(state)
        self.start = Start(
            value_gap=gap,
            gradient=_square(known.gradient(state.x)),
            dual=errors.get("dual", 0.0),
            lower=errors.get("lower", 0.0),
            estimator=errors.get("estimator", 0.0),
        )

    @torch.no_grad()
    def __call__(self, state: State, info: Info) -> None:
        """Measure, if it is time."""
        if info.step % self.every == 0:
            gradient = self.known.gradient(self._before)
            numbers = {
                "gradient": _square(gradient),
                "tracking": _square(add_scaled(gradient, -1, state.z)),
                "z": _square(state.z),
                **self._block_errors(state),
            }
            for name, number in numbers.items():
                self.sequences.setdefault(name, []).append(number)
            self.distance = max(self.distance, self._distance(state))
        if (info.step + 1) % self.every == 0:
            self._before = tree_map(torch.clone, state.x)

    def means(self, skip: int = 0) -> dict[str, float]:
        """Mean of every sequence over the run, without the first `skip` measurements."""
        return {name: sum(values[skip:]) / len(values[skip:]) for name, values in self.sequences.items()}

    def _block_errors(self, state: State) -> dict[str, float]:
        known, errors = self.known, {}
        if state.dual is not None:
            errors["dual"] = _square(add_scaled(state.dual, -1, known.dual_star(state.x)))
        if state.lower is not None:
            errors["lower"] = _square(add_scaled(state.lower, -1, known.lower_star(state.x)))
        if "hessian" in state.memory:
            errors["estimator"] = _square(state.memory["hessian"] - known.hessian_star(state.x))
        elif "v" in state.memory:
            errors["estimator"] = _square(ravel_blocks(state.memory["v"]) - known.v_star(state.x))
        return errors

    def _distance(self, state: State) -> float:
        if self._solution is None:
            return math.nan
        x, dual, lower = self._solution
        square = _square(add_scaled(state.x, -1, x))
        pairs = ((state.dual, dual), (state.lower, lower))
        away = [ravel_blocks(now) - ravel_blocks(best) for now, best in pairs if best is not None]
        return math.sqrt(square + float(torch.cat(away, dim=1).square().sum(1).max()))


def _square(tree: Tree) -> float:
    return float(norm(tree)) ** 2
