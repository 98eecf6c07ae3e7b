"""MiniBatchPartialAUC: partial AUC of the mini-batch itself (MB)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from mmb.auc.autograd import Gradients
from mmb.auc.entries import Entries
from mmb.auc.labels import Labels
from mmb.auc.objective import Objective
from mmb.auc.scores import check_transform, squash


class MiniBatchPartialAUC(Objective):
    r"""Pairwise square loss between the positives and the top negatives of the batch, task by task.

    $$
    L_k = E_+ E_{top}[(c - h_+ + h_-)^2]
    = \text{Var}_+[h] + \text{Var}_{top}[h] + (c + E_{top}[h] - E_+[h])^2
    $$

    where *top* is the `max_fpr` share of the batch's negatives with the largest scores (by weight; the last
    one counts with the fraction that is left) and both means are over the batch. No state: the price is that
    the estimate is biased, the more so the smaller the batch.

    Args:
        labels: The training labels.
        max_fpr: The share of negatives, in (0, 1].
        margin: `c`.
        scores: `"sigmoid"` or `"logit"`.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].

    Raises:
        ValueError: If `max_fpr` is outside (0, 1].
    """

    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        max_fpr: float = 0.1,
        margin: float = 1.0,
        scores: Literal["sigmoid", "logit"] = "sigmoid",
        task_weighting: float = 0.0,
    ) -> None:
        super().__init__(labels, task_weighting)
        check_transform(scores, ("sigmoid", "logit"))
        if not 0 < max_fpr <= 1:
            raise ValueError(f"max_fpr must be in (0, 1], got {max_fpr}")
        self.max_fpr, self.margin, self.scores = max_fpr, margin, scores

    def estimate(self, entries: Entries) -> tuple[Tensor, Gradients]:
        """$L_k$ averaged over the tasks of the batch; tasks that lack a class here count zero."""
        score, slope = squash(entries.logits, self.scores)
        positive, top = _share(entries.positive), _share(self.top(score, entries.negative))
        both = (positive.sum(0) > 0) & (top.sum(0) > 0)
        mean_positive, mean_top = (positive * score).sum(0), (top * score).sum(0)
        shortfall = self.margin + mean_top - mean_positive
        from_positive, from_top = score - mean_positive, score - mean_top
        variance = (positive * from_positive**2 + top * from_top**2).sum(0)
        d_score = positive * (from_positive - shortfall) + top * (from_top + shortfall)  # half of it
        scale = torch.where(both, entries.scale, 0.0)
        value = (scale * (variance + shortfall**2)).sum()
        return value, [(entries.logits, d_score * slope * (2 * scale))]

    def top(self, score: Tensor, negative: Tensor) -> Tensor:
        """Weights `[rows, k]` of the negatives, cut to the `max_fpr` share with the largest scores."""
        order = torch.where(negative > 0, score, -torch.inf).argsort(0, descending=True)
        weight = negative.gather(0, order)
        before = weight.cumsum(0) - weight
        room = (self.max_fpr * negative.sum(0) - before).clamp(min=0)
        return torch.zeros_like(negative).scatter(0, order, torch.minimum(weight, room))


def _share(weights: Tensor) -> Tensor:
    """Weights that sum to one over the rows, or zeros."""
    return weights / weights.sum(0).clamp(min=torch.finfo(weights.dtype).tiny)
