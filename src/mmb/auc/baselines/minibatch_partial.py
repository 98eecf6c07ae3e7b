"""MiniBatchPartialAUC: partial AUC of the mini-batch itself (MB)."""

import math

import torch
from torch import Tensor

from mmb._numbers import check_range, check_whole
from mmb._renamed import renamed_arguments
from mmb.auc.labels import Labels
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.auc.score_objective import ScoreObjective, Transform


class MiniBatchPartialAUC(ScoreObjective):
    r"""Pairwise square loss between the positives and the top negatives of the batch, task by task.

    $$
    L_k = E_+ E_{top}[(c - h_+ + h_-)^2]
    = \text{Var}_+[h] + \text{Var}_{top}[h] + (c + E_{top}[h] - E_+[h])^2
    $$

    where *top* is the `max_fpr` share of the batch's negatives with the largest scores (by weight; the last
    one counts with the fraction that is left) and both means are over the batch. Nothing is tracked: the
    price is that the estimate is biased, the more so the smaller the batch.

    While the model cannot tell positives from the top negatives, it pays to give all rows the same score:
    any spread puts the top negatives above the mean positive. Where tasks are hard, training from random
    weights gets stuck there (on ToxCast at an AUC of 0.5). Then start from a model trained with
    cross-entropy, or set `anneal`: the share starts at one and falls as training learns to rank.

    Args:
        labels: The training labels.
        max_fpr: The share of negatives, in (0, 1].
        anneal: Number of batches of a task over which its share falls geometrically from one to `max_fpr`;
            with 0 it starts there, as in the paper's comparison.
        margin: `c`.
        transform: What the loss compares; see [`MinMaxAUC`][mmb.auc.minmax.MinMaxAUC].
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
    """

    current_share: Tensor

    @renamed_arguments(scores="transform")
    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        max_fpr: float = 0.1,
        anneal: int = 0,
        margin: float = 1.0,
        transform: Transform = "sigmoid",
        task_weighting: float = 0.0,
    ) -> None:
        super().__init__(labels, margin, transform, task_weighting)
        check_range("(0, 1]", max_fpr=max_fpr)
        check_whole("anneal", anneal, 0)
        self.max_fpr, self.anneal = max_fpr, anneal
        if anneal:
            self.register_buffer("current_share", torch.ones_like(self.task_weight))

    def estimate(self, entries: WeightedScores) -> tuple[Tensor, Gradients]:
        """$L_k$ averaged over the tasks of the batch; tasks that lack a class here count zero."""
        score, slope = self.squash(entries)
        share = entries.gather(self.current_share) if self.anneal else self.max_fpr
        positive, top = _normalized(entries.positive), _normalized(self._top(entries, score, share))
        both = (positive.sum(0) > 0) & (top.sum(0) > 0)
        mean_positive, mean_top = (positive * score).sum(0), (top * score).sum(0)
        shortfall = self.margin + mean_top - mean_positive
        from_positive, from_top = score - mean_positive, score - mean_top
        variance = (positive * from_positive**2 + top * from_top**2).sum(0)
        d_score = positive * (from_positive - shortfall) + top * (from_top + shortfall)  # half of it
        scale = torch.where(both, entries.scale, 0.0)
        value = (scale * (variance + shortfall**2)).sum()
        if self.training and isinstance(share, Tensor):
            entries.scatter_(
                self.current_share, (share * self.max_fpr ** (1 / self.anneal)).clamp(min=self.max_fpr)
            )
        return self.held(entries, value, d_score * (2 * scale), slope)

    @staticmethod
    def _top(entries: WeightedScores, score: Tensor, share: Tensor | float) -> Tensor:
        """`top_part`; on a CPU among a few rows if they suffice: sorting all takes three times as long."""
        looks = score.device.type == "cpu" and not torch.compiler.is_compiling()
        if looks and not isinstance(share, Tensor):
            few = math.ceil(1.5 * share * len(score)) + 1  # weights differ
            if few < len(score):
                top = top_part(score, entries.negative, share, among=few)
                if bool((top.sign().sum(0) < few).all()):  # and those below get nothing
                    return top
        return top_part(score, entries.negative, share)


def top_part(score: Tensor, negative: Tensor, share: Tensor | float, among: int | None = None) -> Tensor:
    """Weights `[rows, k]` of the negatives, cut to the share (`[k]`) of them with the largest scores.

    With `among`, only that many of the largest are considered.
    """
    # below all others are the rows without weight: arithmetic is several times faster than comparisons
    ranked = torch.add(score, negative.sign() - 1, alpha=torch.finfo(score.dtype).max / 2)
    order = ranked.argsort(0, descending=True) if among is None else ranked.topk(among, 0).indices
    weight = negative.gather(0, order)
    before = weight.cumsum(0) - weight
    room = (share * negative.sum(0) - before).clamp(min=0)
    return torch.zeros_like(negative).scatter(0, order, torch.minimum(weight, room))


def _normalized(weights: Tensor) -> Tensor:
    """Weights that sum to one over the rows, or zeros."""
    return weights / weights.sum(0).clamp(min=torch.finfo(weights.dtype).tiny)
