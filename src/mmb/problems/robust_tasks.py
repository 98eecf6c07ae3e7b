"""A nonconvex problem: a shared encoder, a ridge head per task, and worst-case weights on groups of rows."""

import math
from typing import Any

import torch
from torch import Tensor

from mmb._numbers import check_positive, check_sizes
from mmb.known_problem import KnownProblem
from mmb.problem import Problem
from mmb.projections import simplex
from mmb.trees import Tree, gather


class RobustTasks(KnownProblem):
    r"""Learn features with which every task's ridge regression is good on its worst group of rows.

    `x` holds the weight and bias of the encoder $\phi_x(a) = \tanh(Wa + b)$. Task `i` has rows
    $(a, t)$ in `G` groups, one set to train its head on and one to judge it by:

    $$
    g_i(x, y) &= \tfrac12\operatorname{mean}_{train}(y'\phi_x(a) - t)^2 + \tfrac{\lambda}{2}|y|^2 \\
    f_i(x, \alpha, y) &= \sum_g \alpha_g\, \tfrac12\operatorname{mean}_{judge,g}(y'\phi_x(a) - t)^2
    - \tfrac{\mu}{2} |\alpha - 1/G|^2, \qquad \alpha \in \text{simplex}
    $$

    Heads have the closed form of ridge regression, weights are the projection of `1/G + losses/mu` on the
    simplex, so value and gradient are exact. It is nonconvex in `x`, and no minimizer is known.

    Args:
        num_blocks: `m`, the number of tasks.
        generator: Draws the data; everything lives on its device.
        inputs: Number of inputs of the encoder.
        hidden: Number of features, the size of a head.
        groups: `G`.
        rows: Rows of each group, and of the training set of each task.
        ridge: `lambda`.
        mu_f: `mu`, strong concavity in the weights.
        dtype: Of all tensors.
    """

    def __init__(
        self,
        num_blocks: int,
        generator: torch.Generator,
        *,
        inputs: int = 5,
        hidden: int = 4,
        groups: int = 3,
        rows: int = 30,
        ridge: float = 0.1,
        mu_f: float = 1.0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        check_sizes(num_blocks=num_blocks, inputs=inputs, hidden=hidden, groups=groups, rows=rows)
        check_positive(ridge=ridge, mu_f=mu_f)
        self.ridge, self.mu_f, self.groups = ridge, mu_f, groups

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=dtype, device=generator.device)

        # Targets are a task's own combination of features common to all tasks, plus noise that grows with
        # the group's number: without weights the noisier groups would be neglected.
        truth, own = normal(hidden, inputs), normal(num_blocks, hidden)

        def data(*shape: int) -> dict[str, Tensor]:
            a = normal(num_blocks, *shape, inputs)
            level = 0.1 + 0.2 * torch.arange(shape[0]) if len(shape) == 2 else torch.tensor([0.2])
            signal = torch.einsum("m...h,mh->m...", torch.tanh(a @ truth.mT), own)
            disturbance = normal(num_blocks, *shape) * level.to(a).unsqueeze(-1)
            return {"inputs": a, "targets": signal + disturbance}

        self._judge, self._train = data(groups, rows), data(rows)
        self.problem = Problem(self._upper, self._lower, num_blocks, project_dual=simplex())
        self.x0 = {"weight": normal(hidden, inputs) / math.sqrt(inputs), "bias": 0.1 * normal(hidden)}
        self.dual0 = torch.full_like(self._judge["targets"][:, :, 0], 1 / groups)
        self.lower0 = torch.zeros_like(own)

    def sample(self, blocks: Tensor, batch_size: int, generator: torch.Generator) -> tuple[Any, Any]:
        """Rows of every group of the blocks, and training rows; see the base class."""
        rows = self._train["targets"].shape[1]
        k, at = len(blocks), blocks.to(self.device).unsqueeze(1)
        judged, trained = (
            torch.randint(rows, (k, n * batch_size), generator=generator, device=self.device)
            for n in (self.groups, 1)
        )
        group = torch.arange(self.groups, device=self.device).view(1, -1, 1)
        judged = judged.view(k, self.groups, batch_size)
        upper_batch = {name: data[at.unsqueeze(2), group, judged] for name, data in self._judge.items()}
        return upper_batch, {name: data[at, trained] for name, data in self._train.items()}

    def exact(self, blocks: Tensor) -> tuple[Any, Any]:
        """All rows of the blocks; see the base class."""
        blocks = blocks.to(self.device)
        return gather(self._judge, blocks), gather(self._train, blocks)

    def lower_star(self, x: Tree) -> Tensor:
        """Ridge regression of every task."""
        features, targets = _encode(x, self._train["inputs"]), self._train["targets"]
        rows = targets.shape[1]
        gram = features.mT @ features / rows + self.ridge * torch.eye(features.shape[2]).to(features)
        return torch.linalg.solve(gram, features.mT @ targets.unsqueeze(-1) / rows).squeeze(-1)

    def dual_star(self, x: Tree) -> Tensor:
        """Projection of `1/G + losses/mu` on the simplex."""
        losses = torch.vmap(_group_losses, in_dims=(None, 0, 0))(x, self.lower_star(x), self._judge)
        return torch.vmap(simplex())(1 / self.groups + losses / self.mu_f)

    def _upper(self, x: Tree, dual: Tensor, head: Tensor, batch: dict[str, Tensor]) -> Tensor:
        away = dual - 1 / self.groups
        return dual @ _group_losses(x, head, batch) - 0.5 * self.mu_f * away @ away

    def _lower(self, x: Tree, head: Tensor, batch: dict[str, Tensor]) -> Tensor:
        miss = _encode(x, batch["inputs"]) @ head - batch["targets"]
        return 0.5 * (miss**2).mean() + 0.5 * self.ridge * head @ head


def _encode(x: Tree, inputs: Tensor) -> Tensor:
    return torch.tanh(inputs @ x["weight"].mT + x["bias"])


def _group_losses(x: Tree, head: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """Half the mean square of one block's misses in each group, [G]."""
    return 0.5 * ((_encode(x, batch["inputs"]) @ head - batch["targets"]) ** 2).mean(-1)
