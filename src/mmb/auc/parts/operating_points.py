"""Operating points: the logit of each task that a given share of its negatives exceeds."""

from statistics import NormalDist

import torch
from torch import Tensor, nn

from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.trees import blend

_MEMORY = 1000  # negatives that mean and spread remember
_FASTEST = 0.2  # of the way to the point that the last batch would choose
_PASSED = (8, 16)  # negatives above the point that one such way takes, at first and later
_TOLD = 3  # negatives above the point that make it known


class OperatingPoints(nn.Module):
    r"""The points $t_k$ with $P_-(z > t_k) = \rho$, in units of the spread of the negatives.

    A batch tells much about the mean $\mu$ and the spread $\sigma$ of a task's negatives, and little about
    their tail: at $\rho = 0.001$ most batches have no negative above the point. So

    $$
    t = \mu + q \sigma,
    $$

    where $\mu$ and $\sigma$ follow the last thousand negatives, and so all scores as they drift, and the tail
    `q` takes steps

    $$
    q \leftarrow q + \gamma \frac{\rho}{\varphi(q_0)} \cdot \frac{\hat p - \rho}{\rho},
    $$

    with the share $\hat p$ of the batch's negatives above the old point, the normal quantile $q_0$, where it
    starts, and the normal density $\varphi$. That is the step that would lead from $\hat p$ to $\rho$, times
    $\gamma$, which is small where a batch tells little: $n \rho / 8$ for `n` negatives, at most 0.2, and
    $n \rho / 16$ later.

    The state takes the dtype and the device of `like`, `[m]`.
    """

    rate_names = ("lr",)

    state: Tensor  # of each task the point, the mean and variance of its negatives, and how many were seen

    def __init__(self, rate: float, like: Tensor) -> None:
        super().__init__()
        normal = NormalDist()
        self.rate, self.lr = rate, 1.0
        # at a rate of one, every point below all scores will do
        self.start = normal.inv_cdf(1 - min(rate, 0.9999))
        self.unit = 1 / normal.pdf(self.start)  # of q, by which the rate changes by one
        self.register_buffer("state", like.new_zeros(like.shape[0], 4))

    @property
    def value(self) -> Tensor:
        """The points, `[m]`, however few negatives were seen."""
        return self.state[:, 0]

    @property
    def seen(self) -> Tensor:
        """How many negatives of each task were seen, `[m]`."""
        return self.state[:, 3]

    def step(self, entries: WeightedScores) -> None:
        """Move the points of the sampled tasks that have negatives in the batch."""
        point, center, variance, seen = entries.gather(self.state).unbind(1)
        negative, mass = entries.negative, entries.negative_mass  # without negatives, nothing is written
        from_center = entries.logits - center
        pull = negative * from_center
        mean, square = pull.sum(0) / mass, pull.mul_(from_center).sum(0) / mass
        count = negative.sign().sum(0)
        # an average over all negatives at first, later of the last ones
        share = count / (seen.clamp(max=_MEMORY) + count)
        moved = share * mean
        new_center = center + moved
        new_variance = torch.lerp(variance, square, share).addcmul_(moved, moved, value=-1).clamp_(min=0)
        # the share above is half of one plus the mean sign: several times faster than comparisons
        mean_sign = (entries.logits - point).sign_().mul_(negative).sum(0) / mass
        surplus = mean_sign + (1 - 2 * self.rate)  # twice
        first, later = (2 * number / self.rate for number in _PASSED)
        speed = (count / (seen + first).clamp(max=later)).clamp(max=_FASTEST / 2)  # half
        tail = (point - center) / _spread(variance) + (speed * surplus).mul_(self.unit).clamp_(-1, 1)
        target = new_center + torch.where(seen.bool(), tail, self.start) * _spread(new_variance)
        if isinstance(self.lr, Tensor) or self.lr != 1:  # it is one unless a schedule lets it fall
            target = blend(point, target, self.lr)
        entries.scatter_(self.state, torch.stack([target, new_center, new_variance, seen + count], 1))

    @torch.no_grad()
    def place(self, entries: WeightedScores, points: Tensor) -> None:
        """Put the points at quantiles `[m]` (NaN without negatives) of all entries of some rows."""
        there = points.isfinite()
        mass = torch.where(there, entries.negative_mass, 1.0)
        center = (entries.negative * entries.logits).sum(0) / mass
        variance = (entries.negative * (entries.logits - center) ** 2).sum(0) / mass
        count = (entries.negative > 0).sum(0).to(mass.dtype)
        new = torch.stack([points, center, variance, count], 1)
        self.state.copy_(torch.where(there.unsqueeze(1), new, self.state))

    def known(self) -> Tensor:
        """The points, `[m]`; NaN, not a guess, where too few negatives were seen."""
        return torch.where(self.seen * self.rate >= _TOLD, self.value, torch.nan)


def _spread(variance: Tensor) -> Tensor:
    """The standard deviation; positive even if all negatives have the same score."""
    return variance.clamp(min=1e-6).sqrt()
