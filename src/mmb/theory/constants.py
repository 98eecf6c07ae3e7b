"""What the theorems are stated in: constants of the problem, of the sampling, and of the start."""

import math
from dataclasses import dataclass

from mmb._numbers import as_number, check_nonnegative, check_positive, check_sizes


@dataclass(frozen=True)
class Constants:
    """Constants of the paper's assumptions, the same for all blocks.

    Norms of matrices that carry noise are Frobenius norms, since variances add up in them.

    Attributes:
        strong_concavity: `mu_f` of f in the dual.
        strong_convexity: `mu_g` of g in the lower variable, on every batch.
        smoothness_upper: `L_f`, Lipschitz constant of the gradient of f in all variables.
        smoothness_lower: `L_g`, of the gradient of g in `(x, y)`.
        lipschitz_upper: `C_f`, a bound on `|grad_x f|` and on `|grad_y f|`.
        cross_bound: `C_gxy`, a bound on `|grad_xy g|`.
        lipschitz_cross: `L_gxy`, Lipschitz constant of `grad_xy g`.
        lipschitz_hessian: `L_gyy`, Lipschitz constant of `grad_yy g`.
        noise: `sigma`; every oracle has variance at most `sigma^2 / B`.

    Raises:
        ValueError: If a constant is not finite, of the wrong sign, or contradicts another.
    """

    strong_concavity: float
    strong_convexity: float
    smoothness_upper: float
    smoothness_lower: float
    lipschitz_upper: float
    cross_bound: float
    lipschitz_cross: float
    lipschitz_hessian: float
    noise: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check = check_positive if name.startswith(("strong", "smoothness")) else check_nonnegative
            check(**{name: value})
        pairs = {"strong_concavity": "smoothness_upper", "strong_convexity": "smoothness_lower"}
        for strong, smooth in pairs.items():
            if getattr(self, strong) > getattr(self, smooth):
                raise ValueError(
                    f"{strong}: expected at most {smooth} = {getattr(self, smooth)}, since the gradient "
                    f"changes at least that fast; got {getattr(self, strong)}"
                )


@dataclass(frozen=True)
class Sampling:
    """How much is sampled per step.

    Attributes:
        num_blocks: `m`.
        blocks_per_step: `|I|`, without replacement.
        batch_size: `B`.

    Raises:
        ValueError: If there are more blocks per step than blocks, or a number is not whole or below 1.
    """

    num_blocks: int
    blocks_per_step: int
    batch_size: int = 1

    def __post_init__(self) -> None:
        check_sizes(**vars(self))
        if self.blocks_per_step > self.num_blocks:
            raise ValueError(
                f"blocks_per_step: expected between 1 and num_blocks={self.num_blocks}, "
                f"got {self.blocks_per_step}"
            )

    @property
    def share(self) -> float:
        """`|I| / m`, how often a block is visited."""
        return self.blocks_per_step / self.num_blocks


@dataclass(frozen=True)
class Start:
    """How far from the solution a run starts, or upper bounds on that.

    Attributes:
        value_gap: `F(x_0) - min F`; NaN if it is not known.
        gradient: `|grad F(x_0)|^2`.
        dual: `delta_alpha`, the sum over blocks of `|alpha_i - alpha_i(x_0)|^2`.
        lower: `delta_y`, likewise.
        estimator: `delta_gyy` of the Hessians for Algorithm 1, `delta_v` for Algorithm 2.

    Raises:
        ValueError: If a number is negative or not finite.
    """

    value_gap: float
    gradient: float
    dual: float
    lower: float
    estimator: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            unknown = name == "value_gap" and isinstance(value, float) and math.isnan(value)
            if not unknown and not 0 <= as_number(value) < math.inf:
                raise ValueError(
                    f"{name}: expected a nonnegative finite number, got {value!r}; pass an upper bound"
                )
