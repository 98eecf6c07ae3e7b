"""The limit without lower level: a noisy quadratic saddle."""

from __future__ import annotations

from typing import Any

import torch

from mmb.problems.quadratic import Quadratic


class Saddle(Quadratic):
    r"""Multi-block min-max quadratic.

    $$
    \min_x \max_\alpha \frac1m\sum_i f_i(x, \alpha_i)
    $$

    $$
    f_i = \tfrac12 (x-c_i)' Q_i (x-c_i) + \alpha'(R_i x - t_i) - \tfrac{\mu_f}{2} |\alpha|^2
    $$

    Args:
        num_blocks: `m`; one block gives the problem of PDSM.
        generator: Draws the coefficients.
        options: Those of [`Quadratic`][mmb.problems.Quadratic] that do not concern the lower level.
    """

    def __init__(self, num_blocks: int, generator: torch.Generator, **options: Any) -> None:
        super().__init__(num_blocks, generator, d_lower=None, **options)
