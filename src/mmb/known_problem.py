"""Problems with known answers: what each of them offers."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mmb.hypergradients.exact import solve_positive_definite
from mmb.oracles import Oracles
from mmb.problem import Problem
from mmb.trees import Tree, ravel_blocks, tree_leaves


class KnownProblem(ABC):
    """A problem whose lower solutions and best duals are known at every `x`, and so its value and gradient.

    Attributes:
        problem: What `mmb.Solver` takes.
        x0: Where to start.
        dual0: Duals to start from, leading axis `m`; None without duals.
        lower0: Lower variables to start from, leading axis `m`; None without lower level.
        x_star: The solution if it has a closed form, otherwise None.
    """

    problem: Problem
    x0: Tree
    dual0: Tree
    lower0: Tree
    x_star: Tree = None

    @abstractmethod
    def sample(self, blocks: Tensor, batch_size: int, generator: torch.Generator) -> tuple[Any, Any]:
        """Draw one batch per block for `f` and, independently, one for `g`.

        Args:
            blocks: The blocks, [k]; on any device.
            batch_size: `B`: variances of all oracles fall as `1 / B`.
            generator: Source of the noise, on the problem's device.

        Returns:
            `(upper_batch, lower_batch)`.
        """

    @abstractmethod
    def exact(self, blocks: Tensor) -> tuple[Any, Any]:
        """The batches of `f` and `g` without noise."""

    @abstractmethod
    def lower_star(self, x: Tree) -> Tree:
        """`y_i(x)` of all blocks, differentiable in `x`; None without lower level."""

    @abstractmethod
    def dual_star(self, x: Tree) -> Tree:
        """`alpha_i(x)`, the best duals at `y_i(x)`, of all blocks; None without duals."""

    def batches(self, batch_size: int, generator: torch.Generator) -> Callable[[Tensor], tuple[Any, Any]]:
        """The argument `batches` of `mmb.solve`: `sample` with this batch size and generator."""
        return partial(self.sample, batch_size=batch_size, generator=generator)

    @property
    def device(self) -> torch.device:
        """Where the problem lives, which is where the generator that made it lives."""
        return tree_leaves(self.x0)[0].device

    def value(self, x: Tree) -> Tensor:
        """`F(x) = 1/m sum_i f_i(x, alpha_i(x), y_i(x))` without noise."""
        upper_batch, _ = self.exact(self._all())
        arguments = (self.dual_star(x), self.lower_star(x), upper_batch)
        in_dims = (None, *(None if argument is None else 0 for argument in arguments))
        values: Tensor = torch.vmap(self.problem.upper, in_dims=in_dims)(x, *arguments)
        return values.mean()

    def gradient(self, x: Tree) -> Tree:
        """`grad F(x)`, through `y_i(x)` and `alpha_i(x)`."""
        return torch.func.grad(self.value)(x)

    def hessian_star(self, x: Tree) -> Tensor:
        """`grad_yy g_i(x, y_i(x))` of all blocks: what Algorithm 1 tracks, [m, d, d]."""
        return self._at_solution(x).hessian()

    def v_star(self, x: Tree) -> Tensor:
        """`[grad_yy g_i]^-1 grad_y f_i` at `y_i(x), alpha_i(x)`: what Algorithm 2 tracks, [m, d]."""
        at = self._at_solution(x)
        return solve_positive_definite(at.hessian(), ravel_blocks(at.upper.grad_lower))[0]

    def _at_solution(self, x: Tree) -> Oracles:
        return Oracles(self.problem, x, self.dual_star(x), self.lower_star(x), *self.exact(self._all()))

    def _all(self) -> Tensor:
        return torch.arange(self.problem.num_blocks, device=self.device)
