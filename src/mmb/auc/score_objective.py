"""From logits to the scores an objective compares: how they are squashed, and the slope of it."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from mmb.auc.labels import Labels
from mmb.auc.objective import Objective
from mmb.auc.parts.weighted_scores import WeightedScores

Transform = Literal["sigmoid", "logit", "recentered"]


class ScoreObjective(Objective):
    r"""An objective that wants scores `h` of positives to be above those of negatives by a margin.

    Args:
        labels: The training labels.
        margin: `c`, positive.
        transform: `"sigmoid"`: `h = sigmoid(logit)`; `"logit"`: `h = logit`; `"recentered"`:
            $h = \mathrm{sigmoid}(\text{logit} - \log(n_+ / n_-))$, spread about one half however rare the
            positives are.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].

    Raises:
        ValueError: If an argument is out of its range.
    """

    def __init__(
        self, labels: Labels | Tensor, margin: float, transform: Transform, task_weighting: float
    ) -> None:
        if not margin > 0:  # any other asks for positives at or below negatives
            raise ValueError(f"margin must be positive, got {margin}")
        if transform not in get_args(Transform):
            raise ValueError(f"transform must be one of {', '.join(get_args(Transform))}; got {transform!r}")
        super().__init__(labels, task_weighting)
        self.margin, self.transform = margin, transform

    def log_odds(self) -> Tensor:
        """`log(n+ / n-)` of each task, `[m]`: about where cross-entropy puts the logits."""
        return (self.positives / self.negatives).log()

    def squash(self, entries: WeightedScores) -> tuple[Tensor, Tensor]:
        """Scores `h` and their slope `dh/dlogit`, `[rows, k]` (the slope of `"logit"` is a scalar one)."""
        logits = entries.logits
        if self.transform == "logit":
            return logits, logits.new_ones(())
        recentered = self.transform == "recentered"
        score = torch.sigmoid(logits - entries.gather(self.log_odds()) if recentered else logits)
        return score, torch.addcmul(score, score, score, value=-1)  # h - h^2
