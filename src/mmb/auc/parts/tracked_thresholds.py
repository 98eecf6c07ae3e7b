"""Tracked thresholds: the lower level of the partial AUC objectives, with operating points for deployment."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmb.auc.parts.operating_points import OperatingPoints
from mmb.auc.parts.soft_quantiles import SoftQuantiles, Tracking
from mmb.auc.parts.weighted_scores import WeightedScores


class ThresholdReport(NamedTuple):
    """Tracked thresholds and what they should be, on the scale of the logits.

    Attributes:
        tracked: The operating points that the objective holds, `[m]`; NaN while too few negatives were seen.
        quantile: The true quantile of the scores of the negatives, `[m]`; NaN without negatives.
        rate: Share of the negatives above the tracked threshold, `[m]`.
        soft_rate: The same, smoothed as the objective does it, `E_-[sigmoid((z - threshold) / tau1)]`:
            tracking brings this to the target rate.
    """

    tracked: Tensor
    quantile: Tensor
    rate: Tensor
    soft_rate: Tensor


class TrackedThresholds(SoftQuantiles):
    """Soft quantiles of the negatives, and the points where their logits really cross `max_fpr`.

    Soft quantiles are smoothed. For deployment there are `operating_points`.
    """

    def __init__(self, max_fpr: float, min_fpr: float, like: Tensor, **options: Any) -> None:
        super().__init__(max_fpr, min_fpr, like, **options)
        self.operating_points = OperatingPoints(max_fpr, like)

    def step(self, entries: WeightedScores, tracking: Tracking) -> None:
        """Move thresholds, Hessians and operating points of the sampled tasks."""
        super().step(entries, tracking)
        self.operating_points.step(entries)

    @torch.no_grad()
    def warm_start(self, entries: WeightedScores, z: Tensor) -> None:
        """Put thresholds and operating points at quantiles, Hessians at the curvature."""
        super().warm_start(entries, z)
        self.operating_points.place(entries, self.quantiles(entries, entries.logits)[:, 0])

    def report(self, entries: WeightedScores, z: Tensor) -> ThresholdReport:
        """Compare with the scores of some rows: `averaged` entries of all tasks."""
        operating = self.operating_points.known()
        rate = (entries.negative * (entries.logits > operating)).sum(0).where(operating.isfinite(), torch.nan)
        soft = self.rates[0] * entries.negative_mass - self.look(entries, z).slope[0]  # at tau2 = 0
        soft = soft.where(entries.negative_mass.isfinite(), torch.nan)
        quantile = self.quantiles(entries, entries.logits)[:, 0]
        return ThresholdReport(operating.float(), quantile.float(), rate.float(), soft.float())
