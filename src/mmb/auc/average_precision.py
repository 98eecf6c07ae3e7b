"""AveragePrecision: average precision of every task, with two tracked numbers per positive (SOAP)."""

from typing import NamedTuple

import torch
from torch import Tensor

from mmb._numbers import check_choice, check_range
from mmb.auc.labels import Labels
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.pairs import PairLosses, Pairs, Surrogate, pair_loss
from mmb.auc.parts.per_positive import PerPositive
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.auc.per_positive_objective import PerPositiveObjective
from mmb.auc.score_objective import Transform


class Rivals(NamedTuple):
    """The positives of a batch, and what may be above them."""

    pairs: Pairs
    weight: Tensor  # of positives and of negatives, [2, rows, k]
    itself: Tensor  # what a positive's own pair adds to `P`, as much as in all data, [e]


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
    first visit sets them), and the estimate is at the new ones. Batches must carry `rows`. For a
    variance-reduced average, see [`MSVRAveragePrecision`][mmb.auc.MSVRAveragePrecision].

    A positive is above itself. In all data that is one of $n_+$ positives, in a batch perhaps one of two: its
    own pair counts as in all data.

    Use it after cross-entropy, where it gains; from random weights it is often worse than cross-entropy.
    Probabilities are compared by default: logits of hopeless positives would outweigh all others.

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
        transform: Transform = "sigmoid",
        beta: float = 0.1,
        task_weighting: float = 0.0,
    ) -> None:
        labels = labels if isinstance(labels, Labels) else Labels(labels)
        super().__init__(labels, margin, transform, task_weighting)
        check_choice(Surrogate, surrogate=surrogate)
        check_range("(0, 1]", beta=beta)
        self.surrogate, self.beta = surrogate, beta
        self.own_loss = float(pair_loss(torch.tensor(margin, dtype=torch.float64), surrogate)[0])
        self.above = PerPositive(labels, self.task_weight, start=(0.0, 0.0))  # P and Q; unseen at zero

    def estimate(self, entries: WeightedScores) -> tuple[Tensor, Gradients]:
        """$L_k$ averaged over the tasks of the batch."""
        rivals = self.rivals(entries)
        pairs = rivals.pairs
        slots = self.above.find(entries, pairs)
        score, slope = self.squash(entries)
        losses, now, d_own = self.count(score, rivals)
        old = self.above.read(slots)
        new = self.follow(old.to(now.dtype).T, now, rivals)
        scale = pairs.of_task(entries.scale * entries.negative_mass.sign())  # zero without negatives
        if self.training:
            self.above.store(slots, old, new.T, pairs.known.logical_and(scale))
        p, q = new
        both = p + q
        share = pairs.weight * scale / both
        value = share.dot(q)
        of_both = torch.stack([-q, p]).div_(both).mul_(share)  # the derivatives by P and Q
        d_score = losses.slope_of_entries(of_both).mul_(rivals.weight).sum(0)
        d_score = pairs.less_own(d_score, (of_both * d_own).sum(0))
        return self.held(entries, value, d_score, slope)

    def rivals(self, entries: WeightedScores) -> Rivals:
        """The positives of a batch, and the weights of what may be above them."""
        pairs, labeled = Pairs.of(entries, self.capacity), entries.gather(self.positives + self.negatives)
        prior = entries.gather(self.positives) / labeled
        weight = torch.stack([entries.positive, entries.negative])
        weight.mul_(torch.stack([prior, 1 - prior]).unsqueeze(1))
        return Rivals(pairs, weight, itself=pairs.of_task(self.own_loss / labeled))

    def count(self, score: Tensor, rivals: Rivals) -> tuple[PairLosses, Tensor, Tensor]:
        """Pair losses of scores `[rows, k]`, and `P` and `Q` of the batch with their slopes, `[2, e]`."""
        losses = rivals.pairs.losses(score, self.margin, self.surrogate, itself=False, spread=self.spread)
        above, slope = losses.of_positives(rivals.weight)
        above[0].add_(rivals.itself)
        return losses, above, slope

    def follow(self, old: Tensor, now: Tensor, rivals: Rivals) -> Tensor:
        """The tracked numbers, `[2, e]`, after a batch; they are zero before the first."""
        kept = (1 - self.beta) * old[0].sign()
        return torch.lerp(now, old, kept)
