"""What objectives with tracked thresholds share: operating points, and how well they are tracked."""

import torch
from torch import Tensor

from mmb.auc.objective import Objective
from mmb.auc.parts.tracked_thresholds import ThresholdReport, TrackedThresholds
from mmb.auc.parts.weighted_scores import WeightedScores


class ThresholdObjective(Objective):
    """An objective that tracks, for each task, the score threshold at a false positive rate."""

    tracked: TrackedThresholds

    @property
    def tracks_thresholds(self) -> bool:
        """It does."""
        return True

    def cut(self, entries: WeightedScores) -> Tensor:
        """The scores `z` that the thresholds cut, `[rows, k]`: here the logits."""
        return entries.logits

    @torch.no_grad()
    def thresholds(self, scores: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """Each task's operating point `[m]` at `max_fpr`, on the scale of the model's output.

        Deploy it as `model(x) > thresholds`: about `max_fpr` of the negatives pass. With logits and labels
        `[n, m]` of held-out rows, it is the empirical quantile of their negatives (NaN without any), else the
        tracked operating point: that of the training batches, up to the noise of tracking, and NaN while a
        task has seen too few negatives to know it (3 / `max_fpr`).
        """
        if scores is None and labels is None:
            return self.tracked.operating_points.known()
        if scores is None or labels is None:
            raise ValueError("thresholds needs both scores and labels of the held-out rows, or neither")
        return self.tracked.quantiles(self.entries(scores, labels), scores)[:, 0]

    @torch.no_grad()
    def threshold_report(self, scores: Tensor, labels: Tensor) -> ThresholdReport:
        """Tracked thresholds and what they should be for the logits and labels `[n, m]` of some rows."""
        entries = self.entries(scores, labels).averaged()
        return self.tracked.report(entries, self.cut(entries))

    @torch.no_grad()
    def warm_start(self, scores: Tensor, labels: Tensor) -> None:
        """Put thresholds at the empirical quantiles; tasks without negatives here keep theirs."""
        super().warm_start(scores, labels)
        entries = self.entries(scores, labels).averaged()
        self.tracked.warm_start(entries, self.cut(entries))

    @torch.no_grad()
    def diagnostics(self) -> dict[str, Tensor]:
        """`threshold`: mean over the trained tasks, a logit."""
        return {"threshold": self.task_mean(self.tracked.operating_points.value)}
