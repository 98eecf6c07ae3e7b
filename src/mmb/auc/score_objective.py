"""From logits to the scores an objective compares, and the slope of that."""

import math
from typing import Literal

import torch
from torch import Tensor

from mmb._numbers import check_choice, check_positive
from mmb.auc.labels import Labels
from mmb.auc.objective import Objective
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.shift import PULL, hold_shift
from mmb.auc.parts.weighted_scores import WeightedScores

Transform = Literal["sigmoid", "logit", "recentered"]


class ScoreObjective(Objective):
    """An objective that wants scores `h` of positives above those of negatives by a margin."""

    shift_pull: float = PULL

    def __init__(
        self, labels: Labels | Tensor, margin: float, transform: Transform, task_weighting: float
    ) -> None:
        check_positive(margin=margin)  # any other asks for positives at or below negatives
        check_choice(Transform, transform=transform)
        super().__init__(labels, task_weighting)
        self.margin, self.transform = margin, transform

    @property
    def spread(self) -> float:
        """The largest score `h`; the lowest is zero if this is finite."""
        return math.inf if self.transform == "logit" else 1.0

    def scores(self, entries: WeightedScores) -> Tensor:
        """Scores `h`, `[rows, k]`."""
        logits = entries.logits
        if self.transform == "logit":
            return logits
        recentered = self.transform == "recentered"
        return torch.sigmoid(logits - entries.gather(self.log_odds()) if recentered else logits)

    def squash(self, entries: WeightedScores) -> tuple[Tensor, Tensor]:
        """Scores `h` and their slope `dh/dlogit`, `[rows, k]` (the slope of `"logit"` is a scalar one)."""
        score = self.scores(entries)
        if self.transform == "logit":
            return score, score.new_ones(())
        return score, torch.addcmul(score, score, score, value=-1)  # h - h^2

    def held(
        self, entries: WeightedScores, value: Tensor, d_score: Tensor, slope: Tensor
    ) -> tuple[Tensor, Gradients]:
        """The result of a loss of differences of scores, with a hold on the shift of logits.

        `d_score` is the derivative by the scores, `[rows, k]`, and `slope` theirs, from `squash`.
        """
        if self.transform != "logit":
            return value, [(entries.logits, d_score * slope)]
        pull, d_pull = hold_shift(entries, entries.gather(self.log_odds()), self.shift_pull)
        value = value + (entries.scale * pull).sum()
        return value, [(entries.logits, torch.addcmul(d_score, entries.scale, d_pull))]
