"""CrossEntropy: the usual starting point."""

import torch
from torch import Tensor
from torch.nn import functional

from mmb.auc.labels import Labels
from mmb.auc.objective import Objective
from mmb.auc.parts.weighted_scores import WeightedScores


class CrossEntropy(Objective):
    r"""Binary cross-entropy, the mean over each task's labeled entries.

    $$
    L_k = \pi_k E_+[\log(1 + e^{-z})] + (1 - \pi_k) E_-[\log(1 + e^{z})]
    $$

    with $\pi_k$ the positive share of the task's labels: the same loss for both kinds of batches, also
    when positives and negatives are drawn in other proportions.

    Args:
        labels: The training labels.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
    """

    by_entry = True

    def __init__(self, labels: Labels | Tensor, *, task_weighting: float = 0.0) -> None:
        super().__init__(labels, task_weighting)

    def loss(self, entries: WeightedScores) -> Tensor:
        """Cross-entropy averaged over the tasks of the batch."""
        weight = self.entry_weights(entries)
        target = (entries.positive > 0).to(weight.dtype)
        return functional.binary_cross_entropy_with_logits(
            entries.logits, target, weight=weight, reduction="sum"
        )

    def prior(self) -> Tensor:
        """The positive share of each task's labels, `[m]`."""
        return self.positives / (self.positives + self.negatives)

    def entry_weights(self, entries: WeightedScores, balance: tuple[float, float] = (1.0, 1.0)) -> Tensor:
        """The weight `[rows, k]` of each entry: its part of its task's mean over labels, times scale."""
        prior = entries.gather(self.prior())
        positive, negative = balance[0] * entries.scale * prior, balance[1] * entries.scale * (1 - prior)
        return torch.addcmul(entries.positive * positive, entries.negative, negative)
