"""Focal: cross-entropy with little weight on entries that are already right."""

import torch
from torch import Tensor
from torch.nn import functional

from mmb._numbers import check_nonnegative, check_range
from mmb.auc.baselines.cross_entropy import CrossEntropy
from mmb.auc.labels import Labels
from mmb.auc.parts.weighted_scores import WeightedScores


class Focal(CrossEntropy):
    r"""Focal loss, the mean over each task's labeled entries.

    $$
    -\alpha_t\, (1 - p_t)^\gamma \log p_t
    $$

    with $p_t$ the probability given to the true class and $\alpha_t = \alpha$ for positives,
    $1 - \alpha$ for negatives.

    Args:
        labels: The training labels.
        gamma: How fast entries fade once they are right; zero gives weighted cross-entropy.
        alpha: Weight of the positives, in (0, 1).
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
    """

    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        gamma: float = 2.0,
        alpha: float = 0.5,
        task_weighting: float = 0.0,
    ) -> None:
        super().__init__(labels, task_weighting=task_weighting)
        check_nonnegative(gamma=gamma)
        check_range("(0, 1)", alpha=alpha)
        self.gamma, self.alpha = gamma, alpha

    def loss(self, entries: WeightedScores) -> Tensor:
        """Focal loss averaged over the tasks of the batch."""
        positive = entries.positive > 0
        agreement = torch.where(positive, entries.logits, -entries.logits)
        # (1 - p_t)^gamma; as a power its slope is infinite where 1 - p_t is zero and gamma below one
        fade = torch.exp(self.gamma * functional.logsigmoid(-agreement))
        weights = self.entry_weights(entries, (self.alpha, 1 - self.alpha))
        return (weights * fade * functional.softplus(-agreement)).sum()
