"""The threshold of each task that its `k` highest rows exceed."""

from dataclasses import replace

import torch
from torch import Tensor

from mmb.auc.parts.soft_quantiles import SoftQuantiles, Tracking
from mmb.auc.parts.weighted_scores import WeightedScores


class TopK(SoftQuantiles):
    """Soft quantiles of ALL labeled rows at a rate of `k` over their number, which differs from task to task.

    It takes entries whose negatives are all rows (`every_row`). Its step size is relative: a batch without a
    row above the threshold moves it by `lr`, in logits.
    """

    own_rates: Tensor

    def __init__(
        self, k: int, labeled: Tensor, *, lr: float, beta: float, temperature: float, tau1: float, tau2: float
    ) -> None:
        super().__init__(
            1.0, 0.0, labeled, start=0.0, lr=lr, beta=beta, temperature=temperature, tau1=tau1, tau2=tau2
        )
        self.register_buffer("own_rates", (k / labeled.clamp(min=1)).clamp(max=1), persistent=False)

    def rates_of(self, entries: WeightedScores) -> Tensor:
        """The rates of the batch's tasks, `[1, k]`."""
        return entries.gather(self.own_rates).unsqueeze(0)

    def step(self, entries: WeightedScores, tracking: Tracking) -> None:
        """Move thresholds and Hessians of the sampled tasks."""
        # in no step further than a batch with all rows above moves a threshold at the rate of 1/40
        slope = tracking.slope / self.rates_of(entries).clamp(min=0.025)
        super().step(entries, tracking._replace(slope=slope))

    @torch.no_grad()
    def warm_start(self, entries: WeightedScores, z: Tensor) -> None:
        """Put thresholds at the empirical ones, Hessians at the curvature."""
        labeled = entries.negative > 0
        count = labeled.sum(0)
        place = (self.own_rates * count).long().clamp(max=len(z) - 1)
        ordered = torch.where(labeled, z, -torch.inf).sort(0, descending=True).values
        found = ordered.gather(0, place.unsqueeze(0)).T
        self.value.copy_(torch.where(found.isfinite(), found, self.value))
        curvature = self.look(entries, z).curvature.T
        self.hessian.copy_(torch.where(found.isfinite(), curvature, self.hessian))


def every_row(entries: WeightedScores, prior: Tensor) -> WeightedScores:
    """Entries whose negatives are all labeled rows, weighed so that sums are means over a task's labels."""
    weight = torch.addcmul(prior * entries.positive, 1 - prior, entries.negative)
    return replace(entries, negative=weight, negative_mass=weight.sum(0))
