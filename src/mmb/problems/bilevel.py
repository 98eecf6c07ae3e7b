"""The limit without duals: a noisy bilevel quadratic."""

from __future__ import annotations

from typing import Any

import torch

from mmb.problems.quadratic import Quadratic


class BilevelQuadratic(Quadratic):
    r"""Multi-block bilevel quadratic.

    $$
    \min_x \frac1m\sum_i f_i(x, y_i(x)), \qquad y_i(x) = \arg\min_y g_i(x, y)
    $$

    $$
    f_i = \tfrac12 (x-c_i)' Q_i (x-c_i) + \tfrac{k}{2} |y-w_i|^2, \qquad
    g_i = \tfrac12 (y - P_i x - q_i)' A_i (y - P_i x - q_i)
    $$

    Args:
        num_blocks: `m`; one block gives the problem of SMB.
        generator: Draws the coefficients.
        options: Those of [`Quadratic`][mmb.problems.Quadratic] that do not concern the duals.
    """

    def __init__(self, num_blocks: int, generator: torch.Generator, **options: Any) -> None:
        super().__init__(num_blocks, generator, d_dual=None, **options)
