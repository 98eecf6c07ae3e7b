"""From logits to the scores an objective compares: how they are squashed, and the slope of it."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from mmb.auc.entries import Entries
from mmb.auc.labels import Labels
from mmb.auc.objective import Objective

Transform = Literal["sigmoid", "logit", "recentred"]


class ScoreObjective(Objective):
    r"""An objective that compares scores `h` of positives and negatives.

    Args:
        labels: The training labels.
        scores: `"sigmoid"`: `h = sigmoid(logit)`; `"logit"`: `h = logit`; `"recentred"`:
            $h = \mathrm{sigmoid}(\text{logit} - \log(n_+ / n_-))$, spread about one half however rare the
            positives are.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].

    Raises:
        ValueError: If `scores` is unknown, or `task_weighting` outside [-1, 1].
    """

    def __init__(self, labels: Labels | Tensor, scores: Transform, task_weighting: float) -> None:
        if scores not in get_args(Transform):
            raise ValueError(f"scores must be one of {', '.join(get_args(Transform))}; got {scores!r}")
        super().__init__(labels, task_weighting)
        self.scores = scores

    def log_odds(self) -> Tensor:
        """`log(n+ / n-)` of each task, `[m]`: about where cross-entropy puts the logits."""
        return (self.positives / self.negatives).log()

    def squash(self, entries: Entries) -> tuple[Tensor, Tensor]:
        """Scores `h` and their slope `dh/dlogit`, `[rows, k]` (the slope of `"logit"` is a scalar one)."""
        logits = entries.logits
        if self.scores == "logit":
            return logits, logits.new_ones(())
        recentred = self.scores == "recentred"
        score = torch.sigmoid(logits - entries.gather(self.log_odds()) if recentred else logits)
        return score, torch.addcmul(score, score, score, value=-1)  # h - h^2
