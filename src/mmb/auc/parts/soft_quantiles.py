"""Soft quantiles of the scores of a class, tracked by SGD, and the softly selected scores above them."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from mmb._numbers import check_positive, check_range
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.quantiles import negative_quantiles
from mmb.trees import add_scaled

Gradient = Literal["full", "practical"]


class Tracking(NamedTuple):
    """One look at the lower problems of the batch's tasks, with `t` thresholds each."""

    value: Tensor  # the thresholds, [t, k]
    hessian: Tensor  # their tracked Hessians, [t, k]
    slope: Tensor  # derivative of the lower objective by the threshold, [t, k]
    curvature: Tensor  # its second derivative, [t, k]
    bell: Tensor  # -tau1 times the derivative of slope by each score, [t, rows, k]
    phi: Tensor  # the soft steps at the thresholds, [t, rows, k]


class SoftQuantiles(nn.Module):
    r"""For each task the score thresholds at the ends of a range of false positive rates, tracked by SGD.

    The threshold at rate $\rho$ is a soft quantile of the negative scores `z`:

    $$
    \lambda = \arg\min_\lambda g(\lambda)
    = E_-[\rho \lambda + \tau_1 \log(1 + e^{(z-\lambda)/\tau_1})] + \tfrac{\tau_2}{2} \lambda^2
    $$

    Steps: $\lambda \leftarrow \lambda - \text{lr}\, g'(\lambda)$ and, for the implicit derivative,
    $H \leftarrow (1-\beta) H + \beta\, g''(\lambda)$, both at the old $\lambda$.
    ($\rho$ stands inside the mean: the same for a mean over a task's own rows, of less variance when
    the weights of a dense batch sum to one only in expectation.)

    The scores between the thresholds are selected, softly:

    $$
    s(z) = \frac{\phi(z-\lambda_{max}) - \phi(z-\lambda_{min})}{\rho_{max}-\rho_{min}},
    \qquad \phi(u) = \text{sigmoid}(u / \text{temperature}),
    $$

    without the second term when `min_fpr` is zero: then there is one threshold, at `max_fpr`.
    `tau2` makes the lower problem strongly convex, and biases the rate by `tau2 * threshold`. The state takes
    the dtype and the device of `like`, `[m]`.

    Mirrored entries (`WeightedScores.mirrored`) and scores `-z` give thresholds of the positives.
    """

    rate_names = ("lr",)

    value: Tensor
    hessian: Tensor
    rates: Tensor

    def __init__(
        self,
        max_fpr: float,
        min_fpr: float,
        like: Tensor,
        *,
        start: float,
        lr: float,
        beta: float,
        temperature: float,
        tau1: float,
        tau2: float,
    ) -> None:
        super().__init__()
        check_range("(0, 1]", max_fpr=max_fpr, beta=beta)
        check_range(f"[0, {max_fpr})", min_fpr=min_fpr)
        check_positive(lr_threshold=lr, tau1=tau1, tau2=tau2, temperature=temperature)
        self.lr, self.beta, self.temperature, self.tau1, self.tau2 = lr, beta, temperature, tau1, tau2
        self.ends = (max_fpr, min_fpr) if min_fpr > 0 else (max_fpr,)
        shape = like.shape[0], len(self.ends)
        self.register_buffer("value", like.new_full(shape, start))  # lambda
        self.register_buffer("hessian", like.new_ones(shape))  # H
        self.register_buffer("rates", like.new_tensor(self.ends).unsqueeze(1), persistent=False)
        self.per_width = 1 / (max_fpr - min_fpr)

    def look(self, entries: WeightedScores, z: Tensor) -> Tracking:
        """Soft steps, and derivatives of the lower problems, for scores `z` (`[rows, k]`) that are cut."""
        # stacked instead of transposed, or the soft steps would lie in memory otherwise than the scores
        value = torch.stack(entries.gather(self.value).unbind(1))
        hessian = entries.gather(self.hessian).T
        soft = self._sigmoid(z, value, self.tau1)
        phi = soft if self.temperature == self.tau1 else self._sigmoid(z, value, self.temperature)
        above = entries.negative * soft
        rate = above.sum(1)
        bell = above.addcmul_(above, soft, value=-1)  # w- soft (1 - soft)
        return Tracking(
            value,
            hessian,
            slope=(self.rates_of(entries) * entries.negative_mass).sub_(rate).add_(value, alpha=self.tau2),
            curvature=bell.sum(1) / self.tau1 + self.tau2,
            bell=bell,
            phi=phi,
        )

    def select(self, entries: WeightedScores, tracking: Tracking) -> Tensor:
        """Negative weights times the selection `s`, `[rows, k]`; they sum to about one."""
        phi = tracking.phi
        within = phi[0] if len(phi) == 1 else phi[0] - phi[1]
        return (entries.negative * within).mul_(self.per_width)

    def rates_of(self, entries: WeightedScores) -> Tensor:
        """The rates of the batch's tasks, `[t, 1]` or `[t, k]`."""
        return self.rates

    @staticmethod
    def _sigmoid(z: Tensor, value: Tensor, width: float) -> Tensor:
        """`sigmoid((z - value) / width)`, `[t, rows, k]`."""
        return torch.add(value.unsqueeze(1) / -width, z, alpha=1 / width).sigmoid_()

    def step(self, entries: WeightedScores, tracking: Tracking) -> None:
        """Move thresholds and Hessians of the sampled tasks."""
        entries.scatter_(self.value, add_scaled(tracking.value, -self.lr, tracking.slope).T)
        entries.scatter_(self.hessian, torch.lerp(tracking.hessian, tracking.curvature, self.beta).T)

    def through_selection(self, entries: WeightedScores, tracking: Tracking, payoff: Tensor) -> Tensor:
        r"""Derivative by `z` through the selection: directly, and through the thresholds.

        With the loss $f = E_-[s(z) v] + \dots$:

        $$
        w_-\, v\, \partial_z s - \partial^2_{z \lambda} g \; H^{-1}\, \partial_\lambda f,
        \qquad \partial_\lambda f = - E_-[v\, \partial_z s]
        $$

        `payoff` is $v$, what one unit of selection adds to the loss. All are `[rows, k]`.
        """
        phi, bell = tracking.phi, tracking.bell
        hill = bell
        if self.temperature != self.tau1:
            hill = entries.negative * torch.addcmul(phi, phi, phi, value=-1)
        push = hill * payoff  # [t, rows, k], without sign / (width * temperature)
        steep = self.per_width / self.temperature
        d_threshold = -steep * push.sum(1)  # of one threshold
        if len(phi) == 2:
            d_threshold[1].neg_()
        implicit = bell * (d_threshold / (self.tau1 * tracking.hessian)).unsqueeze(1)
        direct = push[0] if len(phi) == 1 else push[0] - push[1]
        return torch.add(implicit[0] if len(phi) == 1 else implicit.sum(0), direct, alpha=steep)

    @torch.no_grad()
    def warm_start(self, entries: WeightedScores, z: Tensor) -> None:
        """Put thresholds at the quantiles of negatives (of `averaged` entries), Hessians at the curvature."""
        found = self.quantiles(entries, z)
        there = found.isfinite()
        self.value.copy_(torch.where(there, found, self.value))
        self.hessian.copy_(torch.where(there, self.look(entries, z).curvature.T, self.hessian))

    def quantiles(self, entries: WeightedScores, z: Tensor) -> Tensor:
        """Empirical thresholds `[m, t]`: quantiles of the negative scores, NaN without negatives."""
        return negative_quantiles(z, entries.negative > 0, self.ends).T
