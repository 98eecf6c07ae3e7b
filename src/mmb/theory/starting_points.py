"""Step sizes to start from in practice, if the constants of the theory are not known."""

import math
from dataclasses import dataclass
from typing import Any

from mmb._numbers import check_nonnegative, check_positive
from mmb.hypergradients import QuadraticSGD
from mmb.theory.constants import Sampling


@dataclass(frozen=True)
class Decay:
    """The schedule `initial / (1 + step / scale)^power`, for any learning rate of `mmb.Solver`.

    Args:
        initial: Value at step 0.
        scale: Number of steps for which it stays near that value.
        power: How fast it falls after that; 0 is constant.

    Raises:
        ValueError: If a number is negative or not finite, or `scale` is 0.
    """

    initial: float
    scale: float
    power: float

    def __post_init__(self) -> None:
        check_nonnegative(initial=self.initial, power=self.power)
        check_positive(scale=self.scale)

    def __call__(self, step: int) -> float:
        """Value at a step."""
        return self.initial * math.pow(1 + step / self.scale, -self.power)


def practical(
    num_blocks: int, blocks_per_step: int, *, smoothness_upper: float = 1.0, smoothness_lower: float = 1.0
) -> dict[str, Any]:
    r"""Arguments of `mmb.Solver` to start from: `Solver(problem, **practical(m, k))`.

    As in the theorems, `x` moves slower by $s = |I|/m$, so that rarely visited blocks can follow. With
    $L_f, L_g$ the arguments and $t$ the step,

    $$
    \eta_0 = \frac{s}{2L_f} (1 + st/20)^{-3/4}, \qquad \eta_1 = \frac{1}{2L_f} (1 + st/20)^{-1/2}, \qquad
    \eta_2 = \frac{1}{2L_g} (1 + st/20)^{-1/2}, \qquad \beta_0 = \tfrac12
    $$

    that is, decay starts after about 20 visits to every block, and is faster for `x` than for what follows
    it. The estimator is that of Algorithm 2 with $\eta_3 = 1/(2L_g)$. If a run diverges, raise the smoothness
    of the level that diverges first (`mmb.Watch` says which); if it is slow, lower it.

    Args:
        num_blocks: `m`.
        blocks_per_step: `|I|`.
        smoothness_upper: `L_f`, roughly the largest curvature of `f`; losses of order 1 in parameters of
            order 1 have about 1.
        smoothness_lower: `L_g`, of `g` in the lower variable.

    Returns:
        Keyword arguments; change any of them, such as `hypergradient` for Algorithm 1.

    Raises:
        ValueError: If a number is out of its range.
    """
    share = Sampling(num_blocks, blocks_per_step).share
    check_positive(smoothness_upper=smoothness_upper, smoothness_lower=smoothness_lower)
    scale = 20 / share
    return {
        "hypergradient": QuadraticSGD(lr=0.5 / smoothness_lower),
        "lr": Decay(0.5 * share / smoothness_upper, scale, 0.75),
        "lr_dual": Decay(0.5 / smoothness_upper, scale, 0.5),
        "lr_lower": Decay(0.5 / smoothness_lower, scale, 0.5),
        "beta": 0.5,
        "z_start": "estimate",
    }
