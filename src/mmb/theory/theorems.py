r"""Step sizes and iteration counts of the paper's two theorems, and the bounds of its lemmas.

`corrected=True` is what deriving the proofs again gives; `corrected=False` is what the paper prints. They
differ in:

1. *Lemma on the duals.* Its noise, $2\eta_1^2\sigma^2|I|/B$ per step, over its rate,
   $\eta_1\mu_f|I|/(4m)$, is $8m\eta_1\sigma^2/(\mu_f B)$; the paper has $\mu_f$ in the
   numerator. Hence $\eta_1 \le \mu_f B\epsilon^2/(96 C_1\sigma^2)$. The lemma on `v` has the same
   slip in $\mu_g$.
2. *Algorithm 2*: $\tilde C_1, \tilde C_2, C_3$ are printed without the factor 4 that the proof uses.
3. *Lemma on v*: what `v` follows moves with the Hessian and with $\nabla_y f$. For
   $|v| \le \Gamma$, $\nabla_v\gamma$ is $L_{gyy}\Gamma + L_f$ Lipschitz in
   $(x,\alpha,y)$; this replaces $L_g$ in $C_v$ and in
   $24 L_g^2/\mu_g^2 \sum(\delta_y+\delta_\alpha)$.
4. *Motion of the solutions*: $\alpha_i(x) = \alpha_i(x, y_i(x))$ is $C_\alpha\sqrt{1+C_y^2}$
   Lipschitz, not $C_\alpha$, and $v_i(x)$ accordingly; this enters $L_F$ and the conditions
   on $\eta_0$.
5. *Blocks are sampled without replacement*: their variance has the factor $(m-|I|)/(m-1)$, zero if all
   blocks are used; and the two parts of the variance of $\Delta$ are divided by $|I|$ and by
   $B$ each on its own, instead of both by $\min(|I|, B)$.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from mmb._numbers import check_positive
from mmb.hypergradients import Hypergradient, MomentumHessian, QuadraticSGD
from mmb.problem import Problem
from mmb.solver import Solver
from mmb.theory.constants import Constants, Sampling, Start


@dataclass(frozen=True)
class Parameters:
    """What a theorem says to use.

    Attributes:
        lr: `eta_0`.
        lr_dual: `eta_1`.
        lr_lower: `eta_2`.
        beta: `beta_0`, the weight of the newest estimate.
        estimator_rate: `beta_1` of Algorithm 1, `eta_3` of Algorithm 2.
        radius: `Gamma` of Algorithm 2; infinite for Algorithm 1.
        steps: `T`, after which the mean of `|grad F|^2` is at most `epsilon^2` in expectation.
        algorithm: 1 or 2.
    """

    lr: float
    lr_dual: float
    lr_lower: float
    beta: float
    estimator_rate: float
    radius: float
    steps: int
    algorithm: Literal[1, 2]

    def hypergradient(self, initial_hessian: float = 1.0) -> Hypergradient:
        """The estimator; `initial_hessian` (Algorithm 1) is the multiple of the identity to start from."""
        if self.algorithm == 1:
            return MomentumHessian(beta=self.estimator_rate, initial=initial_hessian)
        return QuadraticSGD(lr=self.estimator_rate, radius=self.radius)

    def solver(self, problem: Problem, *, initial_hessian: float = 1.0, **options: Any) -> Solver:
        """The solver with these parameters; other options of `mmb.Solver` pass through."""
        return Solver(
            problem,
            self.hypergradient(initial_hessian),
            lr=self.lr,
            lr_dual=self.lr_dual,
            lr_lower=self.lr_lower,
            beta=self.beta,
            **options,
        )


@dataclass(frozen=True)
class Theorem:
    """One of the paper's two convergence theorems, for a given problem and sampling.

    Its properties are the constants of the proof: `C_1` to `C_3` (`weight_dual`, `weight_lower`,
    `weight_estimator`) weigh the squared errors per block in the error of the gradient, and so on.

    Args:
        algorithm: 1 (tracks Hessians) or 2 (tracks v).
        constants: Constants of the assumptions.
        sampling: How much is sampled per step.
        corrected: With the corrections listed at the top of this module, or as printed in the paper.
    """

    algorithm: Literal[1, 2]
    constants: Constants
    sampling: Sampling
    corrected: bool = True

    def __post_init__(self) -> None:
        if self.algorithm not in (1, 2):
            raise ValueError(f"algorithm: expected 1 or 2, got {self.algorithm!r}")

    def parameters(self, epsilon: float, start: Start) -> Parameters:
        """Largest step sizes and least iteration count for which the theorem holds, `z` starting at zero.

        Args:
            epsilon: The accuracy: the mean of `|grad F|^2` over the run is to be at most `epsilon^2`.
            start: How far from the solution the run starts.

        Returns:
            The parameters.

        Raises:
            ValueError: If `epsilon` is not positive, or the value gap at the start is not known.
        """
        check_positive(epsilon=epsilon)
        if math.isnan(start.value_gap):
            raise ValueError(
                "start.value_gap: expected a number, got nan, which ErrorSequences gives without x_star; "
                "pass an upper bound: dataclasses.replace(start, value_gap=...)"
            )
        c, share, blocks = self.constants, self.sampling.share, self.sampling.blocks_per_step
        mu_f, mu_g = c.strong_concavity, c.strong_convexity
        goal = epsilon**2

        def noise_limit(factor: float, weight: float, variance: float) -> float:
            return _over(goal * self.sampling.batch_size, factor * weight * variance)

        # Other conditions of the theorems, such as lr_dual <= 1 / mu_f, follow from these.
        slip_f, slip_g = (mu_f, mu_g) if self.corrected else (1 / mu_f, 1 / mu_g)
        lr_dual = min(mu_f / c.smoothness_upper**2, slip_f * noise_limit(96, self.weight_dual, c.noise**2))
        longest = mu_g / c.smoothness_lower**2
        lr_lower = min(longest, mu_g * noise_limit(48, self.weight_lower, c.noise**2))
        estimator_limit = noise_limit(96, self.weight_estimator, self.estimator_variance)
        if self.algorithm == 1:
            rate = contraction = min(1.0, estimator_limit)
        else:
            rate = min(longest, slip_g * estimator_limit)
            contraction = rate * mu_g
        beta = min(1.0, _over(goal, 12 * self.variance))
        (by_beta, by_dual, by_lower), by_gap = (
            ((math.sqrt(80), math.sqrt(640), math.sqrt(160)), 30)
            if self.algorithm == 1
            else ((8.0, 32.0, 16.0), 32)
        )
        root_dual, root_lower, root_estimator = (
            math.sqrt(weight) for weight in (self.weight_dual, self.weight_lower, self.weight_estimator)
        )
        lr = min(
            1 / (2 * self.smoothness),
            beta / (by_beta * self.smoothness),
            lr_dual * mu_f * share / (by_dual * root_dual * self.motion_dual),
            lr_lower * mu_g * share / (by_lower * root_lower * self.motion_lower),
            _over(contraction * share, by_dual * root_estimator * self.motion_estimator),
        )
        estimate = self.variance + self.gradient_error(start) / 4
        tracking = (1 - beta) * start.gradient + beta * estimate  # bounds E|grad F(x_0) - z_1|^2
        steps = max(
            by_gap * start.value_gap / lr,
            15 * tracking / beta,
            60 * self.weight_dual * start.dual / (mu_f * blocks * lr_dual),
            30 * self.weight_lower * start.lower / (mu_g * blocks * lr_lower),
            60 * self.weight_estimator * start.estimator / (blocks * contraction),
        )
        return Parameters(
            lr=lr,
            lr_dual=lr_dual,
            lr_lower=lr_lower,
            beta=beta,
            estimator_rate=rate,
            radius=math.inf if self.algorithm == 1 else self.radius,
            steps=max(1, math.ceil(steps / goal)),
            algorithm=self.algorithm,
        )

    def bounds(
        self, parameters: Parameters, start: Start, steps: int, measured: dict[str, float]
    ) -> dict[str, float]:
        r"""Bounds of the lemmas on the mean errors of duals, lower variables and estimator over a run.

        The mean over $t = 0, \dots, T$ of each error is at most

        * lower: $\frac{2m}{|I|\eta_2\mu_g}\frac{\delta_{y,0}}{T} + \frac{4m\eta_2\sigma^2}{\mu_g B} +
          \frac{8m^3C_y^2\eta_0^2}{|I|^2\eta_2^2\mu_g^2} \overline{|z|^2}$
        * dual: $\frac{4m}{|I|\eta_1\mu_f}\frac{\delta_{\alpha,0}}{T} +
          \frac{24L_f^2}{\mu_f^2}\overline{\delta_y} + \frac{8m\eta_1\sigma^2}{\mu_f B} +
          \frac{32m^3C_\alpha^2\eta_0^2}{|I|^2\eta_1^2\mu_f^2} \overline{|z|^2}$
        * estimator: likewise for the Hessians of Algorithm 1 or the `v` of Algorithm 2.

        Args:
            parameters: The step sizes of the run; those of another theorem may be passed.
            start: Errors at the start.
            steps: `T` of the run.
            measured: Means over the run of `"dual"`, `"lower"` and `"z"` (of `|z|^2`), as
                `mmb.theory.ErrorSequences.means` gives them.

        Returns:
            Bounds by the names `"dual"`, `"lower"`, `"estimator"`, in expectation.
        """
        c, m, share = self.constants, self.sampling.num_blocks, self.sampling.share
        mu_f, mu_g = c.strong_concavity, c.strong_convexity
        b, z = self.sampling.batch_size, measured["z"]
        slip_f, slip_g = (1 / mu_f, 1 / mu_g) if self.corrected else (mu_f, mu_g)

        def bound(
            factor: float, contraction: float, initial: float, noise: float, follow: float, motion: float
        ) -> float:
            moved = 2 * factor**2 * m * (motion * parameters.lr / (contraction * share)) ** 2 * z
            return (
                factor * initial / (contraction * share * steps) + follow + 2 * factor * m * noise / b + moved
            )

        follow_dual = 24 * (c.smoothness_upper / mu_f) ** 2 * measured["lower"]
        rate = parameters.estimator_rate
        if self.algorithm == 1:
            contraction, noise = rate, rate * self.estimator_variance
            follow = 32 * c.lipschitz_hessian**2 * measured["lower"]
        else:
            contraction, noise = rate * mu_g, slip_g * rate * self.estimator_variance
            follow = 24 * self.follow**2 * (measured["lower"] + measured["dual"])
        eta_f, eta_g = parameters.lr_dual, parameters.lr_lower
        return {
            "lower": bound(2, eta_g * mu_g, start.lower, eta_g / mu_g * c.noise**2, 0.0, self.motion_lower),
            "dual": bound(
                4, eta_f * mu_f, start.dual, slip_f * eta_f * c.noise**2, follow_dual, self.motion_dual
            ),
            "estimator": bound(4, contraction, start.estimator, noise, follow, self.motion_estimator),
        }

    def gradient_error(self, errors: Start) -> float:
        """`(C_1 delta_alpha + C_2 delta_y + C_3 delta) / m`, what the blocks' errors cost the gradient."""
        total = self.weight_dual * errors.dual + self.weight_lower * errors.lower
        return (total + self.weight_estimator * errors.estimator) / self.sampling.num_blocks

    @property
    def radius(self) -> float:
        """`Gamma = C_f / mu_g`, which bounds `v_i(x)`."""
        return self.constants.lipschitz_upper / self.constants.strong_convexity

    @property
    def motion_lower(self) -> float:
        """`C_y`, Lipschitz constant of `y_i(x)`."""
        return self.constants.smoothness_lower / self.constants.strong_convexity

    @property
    def motion_dual(self) -> float:
        """Lipschitz constant of `alpha_i(x, y_i(x))`, `C_alpha sqrt(1 + C_y^2)`; the paper has `C_alpha`."""
        through_lower = math.hypot(1, self.motion_lower) if self.corrected else 1.0
        return self.constants.smoothness_upper / self.constants.strong_concavity * through_lower

    @property
    def motion_estimator(self) -> float:
        """`C_v` of `v_i(x)`; for Algorithm 1 that of the Hessian at `y_i(x)`."""
        if self.algorithm == 1:
            return self.constants.lipschitz_hessian * math.hypot(1, self.motion_lower)
        return self.follow * (self._all_motion if self.corrected else 1.0)

    @property
    def follow(self) -> float:
        """Lipschitz constant of `v_i` in `(x, alpha, y)`: `(L_gyy Gamma + L_f) / mu_g`; printed `L_g / mu_g`.

        Squared and times 24 it weighs the errors of the duals and lower variables in the lemma on `v`.
        """
        c = self.constants
        moved = c.lipschitz_hessian * self.radius + c.smoothness_upper
        return (moved if self.corrected else c.smoothness_lower) / c.strong_convexity

    @cached_property
    def smoothness(self) -> float:
        """`L_F`, Lipschitz constant of `grad F`."""
        c, ratio = self.constants, self._cross_ratio
        curved = c.lipschitz_cross**2 + (ratio * c.lipschitz_hessian) ** 2
        direct = (2 + 6 * ratio**2) * (c.smoothness_upper * self._all_motion) ** 2
        return math.sqrt(direct + 6 * curved * (1 + self.motion_lower**2) * self.radius**2)

    @property
    def weight_dual(self) -> float:
        """`C_1`."""
        smooth2 = self.constants.smoothness_upper**2
        if self.algorithm == 1:
            return (8 + 24 * self._cross_ratio**2) * smooth2
        return self._factor * 2 * smooth2 + 24 * self.follow**2 * self.weight_estimator

    @property
    def weight_lower(self) -> float:
        """`C_2`."""
        c = self.constants
        curved = (c.lipschitz_cross * self.radius) ** 2
        through_dual = 24 * (c.smoothness_upper / c.strong_concavity) ** 2 * self.weight_dual
        if self.algorithm == 1:
            through_hessian = 32 * c.lipschitz_hessian**2 * self.weight_estimator
            return self.weight_dual + 24 * curved + through_dual + through_hessian
        direct = self._factor * (2 * c.smoothness_upper**2 + 4 * curved)
        return direct + 24 * self.follow**2 * self.weight_estimator + through_dual

    @property
    def weight_estimator(self) -> float:
        """`C_3`."""
        if self.algorithm == 1:
            return 24 * (self._cross_ratio * self.radius) ** 2
        return self._factor * 4 * self.constants.cross_bound**2

    @property
    def estimator_variance(self) -> float:
        """`sigma^2` of the Hessian, or of the gradient that moves `v`."""
        return self.constants.noise**2 * (1 if self.algorithm == 1 else 2 * (1 + self.radius**2))

    @property
    def variance(self) -> float:
        """`C_4 / min(|I|, B)`, a bound on the variance of `Delta`."""
        c, sampling = self.constants, self.sampling
        sigma2, m, k = c.noise**2, sampling.num_blocks, sampling.blocks_per_step
        between_blocks = 16 * c.lipschitz_upper**2 * (1 + self._cross_ratio**2)  # 8 B_F
        if self.algorithm == 1:
            product = 3 * (c.cross_bound**2 + sigma2) / c.strong_convexity**2
            within = 4 * sigma2 * (1 + 3 * self.radius**2 + product)
        else:
            within = 4 * sigma2 * (1 + self.radius**2)
        if not self.corrected:
            return (between_blocks + within) / min(k, sampling.batch_size)
        without_replacement = (m - k) / max(m - 1, 1)
        return between_blocks * without_replacement / k + within / sampling.batch_size

    @property
    def _all_motion(self) -> float:
        """Lipschitz constant of `x -> (x, alpha_i(x), y_i(x))`."""
        return math.hypot(1, self.motion_dual, self.motion_lower)

    @property
    def _cross_ratio(self) -> float:
        return self.constants.cross_bound / self.constants.strong_convexity

    @property
    def _factor(self) -> int:
        return 4 if self.corrected else 1


def _over(numerator: float, denominator: float) -> float:
    """A limit that is absent if what it limits costs nothing."""
    return math.inf if denominator == 0 else numerator / denominator
