"""Is it working? The numbers of every step, what they say, and a stop when they turn bad."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mmb.trees import Tree, all_finite, norm, tree_leaves

if TYPE_CHECKING:
    from mmb.state import State


class BrokenStepError(ArithmeticError):
    """NaN, infinity or an indefinite Hessian was met.

    The message says if the state is still that before the step, as it is with `check_every=1`.

    Attributes:
        quantity: What was bad, such as `"lower_residual"`.
        block: The first block at which it was bad, or None if it is not per block.
        step: The step.
    """

    def __init__(self, message: str, quantity: str, block: int | None, step: int) -> None:
        super().__init__(message)
        self.quantity = quantity
        self.block = block
        self.step = step


@dataclass(frozen=True)
class Info:
    """What one step measures, without an extra backward pass. Tensors stay on their device.

    Attributes:
        step: The step.
        blocks: The sampled blocks, [k].
        estimate: `Delta`, the gradient estimate of this step alone, shaped as `x`.
        staleness: Steps since the last visit to each sampled block (or since the start), [k].
        values: `f_i` at the sampled blocks, [k].
        z_norm: `|z|`, or `|Delta|` if a torch optimizer moves `x`.
        dual_residual: `|projection(alpha_i + lr grad) - alpha_i| / lr`: zero at the best dual, [k].
        lower_residual: `|grad_y g_i|`: zero at the lower solution, [k].
        hypergradient_residual: How far the estimator is from what it tracks, [k]; see the estimator.
        indefinite: Whether a Hessian that is not positive definite was met, [k].
        overflow: Whether the dual, the lower variable or the estimator's memory of a block would not be
            finite after the step, [k]; not measured with `check_every=0`.
        x_overflow: The same of `x`, unless an optimizer moves it.
        broken_peers: How many processes met something bad, if blocks are divided among processes.
    """

    step: int
    blocks: Tensor
    estimate: Tree
    staleness: Tensor
    values: Tensor
    z_norm: Tensor
    dual_residual: Tensor | None = None
    lower_residual: Tensor | None = None
    hypergradient_residual: Tensor | None = None
    indefinite: Tensor | None = None
    overflow: Tensor | None = None
    x_overflow: Tensor | None = None
    broken_peers: Tensor | None = None

    @property
    def value(self) -> Tensor:
        """Mean of `f_i` over the sampled blocks."""
        return self.values.mean()

    def check(self, *, unwritten: bool = False, **batches: Any) -> None:
        """Raise if this step met NaN, infinity or an indefinite Hessian; waits for the device once.

        Args:
            unwritten: Whether the state is still that before the step; the message says so.
            **batches: The step's batches by name; searched only to say where a NaN came from.

        Raises:
            BrokenStepError: Naming the quantity and the block.
        """
        measured = {name: value for name in _MEANINGS if (value := getattr(self, name)) is not None}
        if not any_bad(measured):
            return
        name, mask = next((name, mask) for name, mask in _bad(measured).items() if mask.any())
        position = int(mask.nonzero()[0]) if mask.ndim else None
        block = None if position is None else int(self.blocks[position])
        where = f"step {self.step}" if block is None else f"block {block}, step {self.step}"
        what = _MEANINGS[name]
        if name not in _FLAGS:
            value = float(measured[name] if position is None else measured[name][position])
            what += f" ({name}) is {value}; expected a finite number: {self._cause(position, batches)}"
        where += "; the state is as before this step" if unwritten else ""
        raise BrokenStepError(f"{what} [{where}]", name, block, self.step)

    def _cause(self, position: int | None, batches: dict[str, Any]) -> str:
        for name, batch in batches.items():
            for leaf in tree_leaves(batch):
                if isinstance(leaf, Tensor) and leaf.is_floating_point():
                    row = leaf if position is None else leaf[position]
                    if not torch.isfinite(row).all():
                        return f"{name} holds NaN or infinity there; clean the data"
        if self.step == 0:
            return "the batches are finite and this is the first step, so check f, g and the starting values"
        return "the batches are finite, so lower the step sizes"


# In the order in which the first bad one points best at the cause.
_MEANINGS = {
    "values": "upper: the value f",
    "lower_residual": "lower: the gradient of g in the lower variable",
    "dual_residual": "upper: the gradient of f in the dual",
    "indefinite": "lower: the Hessian of g is not positive definite, or vanishes; expected g strongly convex "
    "in the lower variable and differentiable twice: add a term such as 0.5 * mu * (y ** 2).sum(), and "
    "replace what has no second derivatives (abs, relu, detach, once_differentiable)",
    "hypergradient_residual": "the hypergradient estimator",
    "broken_peers": "another process met NaN, infinity or an indefinite Hessian; its message says where",
    "z_norm": "the gradient estimate of x",
    "overflow": "the dual, the lower variable or the estimator's memory is not finite after the update: "
    "lower lr_dual, lr_lower or the step size of the estimator",
    "x_overflow": "x is not finite after the update: lower its step size",
}
_FLAGS = ("indefinite", "broken_peers", "overflow", "x_overflow")


def check_moved(x: Tree, step: int) -> None:
    """Raise if an optimizer moved x to where it is not finite; waits for the device."""
    if not all_finite(x):
        message = f"{_MEANINGS['x_overflow']} [step {step}; the state is as before this step]"
        raise BrokenStepError(message, "x_overflow", None, step)


def any_bad(measures: dict[str, Tensor]) -> Tensor:
    """Whether a step met NaN, infinity, an indefinite Hessian or a peer that did: a boolean scalar."""
    flags = [value.reshape(-1) > 0 for name, value in measures.items() if name in _FLAGS]
    numbers = [value for name, value in measures.items() if name not in _FLAGS]
    broken = ~all_finite(numbers)
    return broken | torch.cat(flags).any() if flags else broken


def _bad(measures: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value > 0 if name in _FLAGS else ~torch.isfinite(value) for name, value in measures.items()}


@dataclass
class Watch:
    """Callback that prints a one-line verdict every `every` steps and can keep the last good state.

    A verdict compares the mean of each number over the last `every` steps with the `every` before. It also
    checks all of them for NaN and infinity, for solvers that do not (`check_every=0`).

    Args:
        every: Steps between verdicts.
        print: Takes each line; by default it goes to standard error.
        keep: Keep a copy of the state at every verdict in `last_good`, which costs memory and time in
            proportion to the whole state.
    """

    every: int = 100
    print: Callable[[str], None] = lambda line: print(line, file=sys.stderr)
    keep: bool = False
    last_good: dict[str, Any] | None = None
    _sums: dict[str, Tensor] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)
    _before: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every: expected at least 1 step between verdicts, got {self.every}")

    def __call__(self, state: State, info: Info) -> None:
        """Take in one step; print when it is time."""
        numbers = {name: info.values if name == "value" else getattr(info, name) for name in _SHORT}
        for name, number in (numbers | {"estimate": norm(info.estimate)}).items():
            if number is not None and number.numel():  # one of many processes may have no blocks
                mean = number.detach().mean()
                self._sums[name] = self._sums[name] + mean if name in self._sums else mean
                self._counts[name] += 1
        if self._counts["z_norm"] < self.every:
            return
        now = {name: float(total) / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, Counter()
        stalest = int(state.staleness().max()) if state.last_visit.numel() else 0
        self.print(_line(info.step, now, stalest, verdict(self._before, now)))
        info.check()
        bad = next((name for name, mean in now.items() if not math.isfinite(mean)), None)
        if bad is not None:
            raise BrokenStepError(
                f"{bad} was {now[bad]} on average over the last {self.every} steps; expected finite numbers; "
                f"a solver with check_every=1 stops at the step and says why [step {info.step}]",
                bad,
                None,
                info.step,
            )
        if self.keep:
            self.last_good = state.state_dict()
        self._before = now


def verdict(before: dict[str, float], now: dict[str, float]) -> str:
    """Say in words what two windows of a run show.

    Args:
        before: Means over the earlier window, by the names of `Info` (`"estimate"`, which is optional, is
            of its norm); empty for the first window.
        now: Means over the later window.

    Returns:
        A short sentence.
    """
    if not all(math.isfinite(value) for value in now.values()):
        return "broken: NaN or infinity"
    if not before:
        return "started"
    growth = {
        name: now[name] / max(before[name], 1e-300)
        for name in now
        if name != "value" and name in before and now[name] >= _NEGLIGIBLE * now["z_norm"]
    }
    if growth["z_norm"] > 1.5 * max(growth.get("estimate", math.inf), 1):
        # x gains speed, so what follows it falls behind a little, though no gradient grows
        return "warming up: z still grows toward the gradient"
    for name, advice in _ADVICE.items():
        if growth.get(name, 0) > 2:
            return advice
    if growth["z_norm"] < 0.9:
        return "working: gradient falls"
    return "level: at the noise floor, or slow; decay the step sizes to continue"


_NEGLIGIBLE = 1e-3  # of |z|: residuals below it say nothing

_ADVICE = {  # for what grows; the first of them is the likely cause
    "lower_residual": "lower level falls behind: lower lr, or change lr_lower",
    "dual_residual": "duals fall behind: lower lr, or change lr_dual",
    "hypergradient_residual": "hypergradient estimator falls behind: lower lr, or change its step size",
    "z_norm": "gradient grows: lower lr",
}

_SHORT = {
    "value": "f",
    "z_norm": "|z|",
    "dual_residual": "dual",
    "lower_residual": "lower",
    "hypergradient_residual": "hyper",
}


def _line(step: int, now: dict[str, float], stalest: int, words: str) -> str:
    numbers = "  ".join(f"{label} {now[name]:.3g}" for name, label in _SHORT.items() if name in now)
    return f"step {step + 1}: {numbers}  stalest {stalest}  | {words}"
