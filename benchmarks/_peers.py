"""The same quadratic blocks solved with Betty and with TorchOpt, one block at a time and stacked by hand.

Each class has `x` (the shared variable) and `step()` (one step on all blocks, batches included): neither
library can sample blocks. Both take one plain gradient step of every lower variable per step of `x`.
"""

from __future__ import annotations

import importlib.metadata
import logging
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from _block_quadratics import DIM_X, DIM_Y, Blocks, Gather, stacked_lower, stacked_upper

Schedule = Callable[[int], float]


def version(distribution: str) -> str | None:
    """The installed version of a peer, None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


class Variable(torch.nn.Module):
    """A module that is one parameter, which is what Betty wants a variable to be."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.value = torch.nn.Parameter(torch.zeros(*shape))


class Betty:
    """Betty: one upper Problem for `x`; one lower Problem per block, or one for all blocks stacked.

    The hypergradient is Betty's Neumann series: its conjugate gradient takes the new direction from the old
    residual, and its finite difference takes the lower Hessian for the identity (version 0.2.1).
    """

    def __init__(self, gather: Gather, *, lr: Schedule, lr_lower: float, terms: int, stacked: bool) -> None:
        from betty.configs import Config, EngineConfig  # type: ignore[import-untyped, unused-ignore]
        from betty.engine import Engine  # type: ignore[import-untyped, unused-ignore]
        from betty.problems import ImplicitProblem  # type: ignore[import-untyped, unused-ignore]

        num_blocks = len(gather.blocks.offset)
        parts = [None] if stacked else [torch.tensor([block]) for block in range(num_blocks)]
        lowers: list[Any] = []

        class Upper(ImplicitProblem):  # type: ignore[misc]
            def get_batch(self) -> Blocks:
                return gather(None)

            def training_step(self, batch: Blocks) -> Tensor:
                return stacked_upper(torch.cat([lower.module.value for lower in lowers]), batch)

        class Lower(ImplicitProblem):  # type: ignore[misc]
            part: Tensor | None

            def get_batch(self) -> Blocks:
                return gather(self.part)

            def training_step(self, batch: Blocks) -> Tensor:
                return stacked_lower(self.upper.module.value, self.module.value, batch)

        def sgd(variable: Variable, lr: float) -> dict[str, Any]:
            return {"module": variable, "optimizer": torch.optim.SGD(variable.parameters(), lr=lr)}

        x = Variable(DIM_X)
        upper = Upper("upper", Config(retain_graph=True), **sgd(x, lr(0)))
        for i, part in enumerate(parts):
            config = Config(type="neumann", neumann_iterations=terms, neumann_alpha=lr_lower)
            lower = Lower(f"lower{i}", config, **sgd(Variable(num_blocks if stacked else 1, DIM_Y), lr_lower))
            lower.part = part
            lowers.append(lower)
        dependencies = {"u2l": {upper: lowers}, "l2u": {lower: [upper] for lower in lowers}}
        logging.disable(logging.INFO)  # it logs every problem at the start
        config = EngineConfig(strategy="cpu")
        self.engine = Engine([upper, *lowers], config=config, dependencies=dependencies)
        logging.disable(logging.NOTSET)
        self.engine.train()
        self.x: Tensor = x.value
        self.group, self.lr, self.steps = upper.optimizer.param_groups[0], lr, 0

    def step(self) -> None:
        """One gradient step of every lower Problem, then one of the upper."""
        self.group["lr"] = self.lr(self.steps)
        self.steps += 1
        self.engine.train_step()


class TorchOpt:
    """TorchOpt: implicit differentiation by conjugate gradients, in a loop over blocks or stacked."""

    def __init__(
        self, gather: Gather, *, lr: Schedule, lr_lower: float, iterations: int, stacked: bool
    ) -> None:
        import torchopt

        num_blocks = len(gather.blocks.offset)
        self.gather, self.lr, self.steps = gather, lr, 0
        self.parts = [None] if stacked else [torch.tensor([block]) for block in range(num_blocks)]
        self.x = torch.zeros(DIM_X, requires_grad=True)
        self.lowers = [torch.zeros(num_blocks if stacked else 1, DIM_Y) for _ in self.parts]
        lower_gradient: Callable[..., Tensor] = torch.func.grad(stacked_lower, argnums=1)

        def optimality(y: Tensor, x: Tensor, *batch: Tensor) -> Tensor:
            return lower_gradient(x, y, Blocks(*batch))

        def solve(y: Tensor, x: Tensor, *batch: Tensor) -> Tensor:
            return y - lr_lower * lower_gradient(x, y, Blocks(*batch))

        # It calls functorch by its old name, at every step.
        warnings.filterwarnings("ignore", category=FutureWarning, module="torchopt")
        linear_solve = torchopt.linear_solve.solve_cg(maxiter=iterations)
        implicit = torchopt.diff.implicit.custom_root(optimality, argnums=1, solve=linear_solve)
        self.solve: Any = implicit(solve)

    def step(self) -> None:
        """One gradient step of every lower variable, then one of `x` with the implicit gradient there."""
        total = torch.zeros(())
        for i, part in enumerate(self.parts):
            batch = self.gather(part)
            y = self.solve(self.lowers[i], self.x, *batch)
            total = total + stacked_upper(y, batch)
            self.lowers[i] = y.detach()
        (gradient,) = torch.autograd.grad(total / len(self.parts), self.x)
        with torch.no_grad():
            self.x -= self.lr(self.steps) * gradient
        self.steps += 1
