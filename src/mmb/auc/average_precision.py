"""AveragePrecision: average precision of every task, with two tracked numbers per positive (SOAP)."""

import torch
from torch import Tensor

from mmb._numbers import check_choice, check_range
from mmb.auc.labels import Labels
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.pairs import Pairs, Surrogate
from mmb.auc.parts.per_positive import PerPositive
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.auc.per_positive_objective import PerPositiveObjective
from mmb.auc.score_objective import Transform


class AveragePrecision(PerPositiveObjective):
    r"""Average precision, the area under the precision-recall curve (Qi et al., 2021).

    The precision at the rank of a positive `i` is $P_i / (P_i + Q_i)$, with the shares of the task's labels
    that are positives and negatives above it. One minus its mean, counted softly with a surrogate $\ell$, is

    $$
    L_k = E_{i+}\Big[ \frac{Q_i}{P_i + Q_i} \Big],
    \qquad P_i = \pi\, E_{j+}[\ell(c - h_i + h_j)], \quad Q_i = (1-\pi)\, E_{j-}[\ell(c - h_i + h_j)],
    $$

    with the positive share $\pi$ of the labels. A ratio of means is not the mean of ratios, so both numbers
    are tracked for each positive, $u_i \leftarrow (1-\gamma)\, u_i + \gamma\, (P_i, Q_i)$ of the batch (the
    first visit sets them), and the estimate is at the new ones. Batches must carry `rows`.

    A positive is above itself. In all data that is one of $n_+$ positives, in a batch perhaps one of two: its
    own pair counts as in all data.

    Args:
        labels: The training labels.
        surrogate: `"squared_hinge"`: $\ell(s) = \max(s, 0)^2$; or `"logistic"`: $\log(1+e^s)$.
        margin: `c`.
        transform: What the loss compares; see [`MinMaxAUC`][mmb.auc.minmax.MinMaxAUC].
        beta: $\gamma$ in (0, 1], the weight of the newest batch.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
    """

    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        surrogate: Surrogate = "squared_hinge",
        margin: float = 1.0,
        transform: Transform = "logit",
        beta: float = 0.1,
        task_weighting: float = 0.0,
    ) -> None:
        labels = labels if isinstance(labels, Labels) else Labels(labels)
        super().__init__(labels, margin, transform, task_weighting)
        check_choice(Surrogate, surrogate=surrogate)
        check_range("(0, 1]", beta=beta)
        self.surrogate, self.beta = surrogate, beta
        self.above = PerPositive(labels, self.task_weight, start=(0.0, 0.0))  # P and Q; unseen at zero

    def estimate(self, entries: WeightedScores) -> tuple[Tensor, Gradients]:
        """$L_k$ averaged over the tasks of the batch."""
        pairs = Pairs.of(entries, self.capacity)
        slots = self.above.find(entries, pairs)
        score, slope = self.squash(entries)
        loss, d_short = pairs.losses(score, self.margin, self.surrogate)
        labeled = entries.gather(self.positives + self.negatives)
        prior = entries.gather(self.positives) / labeled
        positive = pairs.beside((prior * entries.positive).T.contiguous())
        positive.scatter_(1, pairs.rows.unsqueeze(1), (1 / labeled)[pairs.columns].unsqueeze(1))
        negative = pairs.beside(((1 - prior) * entries.negative).T.contiguous())
        now = torch.stack([(positive * loss).sum(1), loss.mul_(negative).sum(1)], 1)
        old = self.above.value[slots]
        new = torch.where(old[:, :1] > 0, torch.lerp(old.to(now.dtype), now, self.beta), now)
        met = (entries.sampled & (entries.negative_mass > 0))[pairs.columns] & pairs.known
        if self.training:
            self.above.store(slots, new, met)
        above = torch.where(met.unsqueeze(1), new, 1.0)
        both = above.sum(1)
        precision, impurity = (above / both.unsqueeze(1)).unbind(1)
        share = torch.where(met, pairs.weight * entries.scale[pairs.columns], 0.0)
        value = (share * impurity).sum()
        negative.mul_(precision.unsqueeze(1)).addcmul_(positive, impurity.unsqueeze(1), value=-1)
        d_score = pairs.to_scores(negative.mul_(d_short), share / both)
        return self.held(entries, value, d_score * slope)
