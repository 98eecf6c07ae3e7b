"""The stochastic Neumann series that most of the bilevel literature uses, as the paper describes it."""

import math
from typing import Any

import torch
from torch import Tensor

from mmb._numbers import as_number, check_whole
from mmb.hypergradients.base import BatchSolution
from mmb.oracles import Oracles
from mmb.trees import Tree, add_scaled, tree_leaves, tree_map, where_blocks


class Neumann(BatchSolution):
    r"""A random prefix of the series $A^{-1} = \frac1C \sum_{q \ge 0} (I - A/C)^q$.

    $$
    v_i = \frac{k}{C} \prod_{j=1}^{q} \left(I - \tfrac1C \nabla_{yy} g_i(\cdot;\zeta_j)\right)
    \nabla_y f_i, \qquad q \text{ uniform in } \{0, \dots, k-1\}
    $$

    In expectation over `q` this is the series cut after `k` terms. (The paper prints `q` from 1 to k,
    which loses the first term of the series.) Each block draws its own `q`. It remembers nothing.

    Args:
        terms: `k`; the bias falls as `(1 - mu_g / C)^k`.
        smoothness: `C`, at least the largest eigenvalue of the lower-level Hessians.
        randomize: Draw `q`; otherwise sum the `k` terms, without the variance, at the same cost.
        split_batch: Use an independent part of the lower batch for every factor: axis 1 of its tensors
            (the samples) is cut into `k` equal parts. Otherwise all factors share the batch.
    """

    def __init__(
        self, terms: int, smoothness: float, *, randomize: bool = True, split_batch: bool = False
    ) -> None:
        check_whole("terms", terms, 1)
        if not 0 < as_number(smoothness) < math.inf:
            raise ValueError(f"smoothness: expected a finite bound C > 0 on the Hessian, got {smoothness!r}")
        self.terms = terms
        self.smoothness = smoothness
        self.randomize = randomize
        self.split_batch = split_batch

    def draw(self, blocks: int, generator: torch.Generator) -> Tensor:
        """The number of factors `q` of every block."""
        return torch.randint(self.terms, (blocks,), generator=generator, device=generator.device)

    def solve(self, at: Oracles, draw: Tensor | None) -> tuple[Tree, Tensor]:
        """One draw of the series."""
        assert draw is not None
        power = total = at.upper.grad_lower  # (I - A/C)^0 grad_y f
        indefinite = torch.zeros_like(draw, dtype=torch.bool)
        factors = self._factors(at)
        for j in range(1, self.terms):
            product = factors[j % len(factors)].hessian_product(power)
            indefinite = indefinite | at.negative_curvature(power, product)
            power = add_scaled(power, -1 / self.smoothness, product)
            total = where_blocks(draw >= j, power, total) if self.randomize else add_scaled(total, 1, power)
        scale = (self.terms if self.randomize else 1) / self.smoothness
        return tree_map(lambda leaf: scale * leaf, total), indefinite

    def _factors(self, at: Oracles) -> list[Oracles]:
        if not self.split_batch:
            return [at]
        sizes = {leaf.shape[1] if leaf.ndim > 1 else 0 for leaf in tree_leaves(at.lower_batch)}
        if any(size == 0 or size % self.terms for size in sizes):
            raise ValueError(
                f"lower_batch: split_batch needs tensors whose axis 1 (the samples) is a multiple of "
                f"terms={self.terms}, got sizes {sorted(sizes)}"
            )

        def part(j: int) -> Any:
            return tree_map(lambda leaf: leaf.chunk(self.terms, dim=1)[j], at.lower_batch)

        return [at.with_lower_batch(part(j)) for j in range(self.terms)]
