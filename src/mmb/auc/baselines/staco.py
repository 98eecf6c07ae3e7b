"""STACO: two-way partial AUC, exactly, with a threshold and a dual variable per positive."""

import torch
from torch import Tensor

from mmb._numbers import check_positive, check_range
from mmb.auc.labels import Labels
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.pairs import Pairs, PairsAbove
from mmb.auc.parts.per_positive import PerPositive
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.auc.per_positive_objective import PerPositiveObjective
from mmb.auc.score_objective import Transform


class STACO(PerPositiveObjective):
    r"""Two-way partial AUC by thresholds on pair losses (Zhou et al., 2025); see `TwoWayPartialAUC`.

    The mean over the worst share $\rho$ of the negatives is that of [`SOPA`][mmb.auc.SOPA]. The mean over the
    worst share $\theta = 1 - \text{min\_tpr}$ of the positives is one more of the same kind, whose hinge is a
    maximum over a dual variable:

    $$
    L_k = s' + \frac1\theta E_{i+}\big[ y_i\, (g_i - s') \big], \quad 0 \le y_i \le 1,
    \qquad g_i = s_i + \frac1\rho E_{j-}\big[(\ell_{ij} - s_i)_+\big],
    \quad \ell_{ij} = \max(c - h_i + h_j, 0)^2
    $$

    When a positive is met, $y_i$ takes a projected step of ascent. The estimate is at the new one, and at the
    old $s_i$ and $s'$, which then take subgradient steps. Batches must carry `rows`.

    Args:
        labels: The training labels.
        max_fpr: $\rho$, in (0, 1].
        min_tpr: Smallest true positive rate, in [0, 1).
        margin: `c`.
        transform: What the loss compares; see [`MinMaxAUC`][mmb.auc.minmax.MinMaxAUC].
        lr_dual: Step size of $y$.
        lr_positive: Step size of $s_i$.
        lr_level: Step size of $s'$.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
    """

    rate_names = ("lr_dual", "lr_positive", "lr_level")

    level: Tensor

    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        max_fpr: float = 0.1,
        min_tpr: float = 0.5,
        margin: float = 1.0,
        transform: Transform = "sigmoid",
        lr_dual: float = 0.1,
        lr_positive: float = 0.1,
        lr_level: float = 0.1,
        task_weighting: float = 0.0,
    ) -> None:
        labels = labels if isinstance(labels, Labels) else Labels(labels)
        super().__init__(labels, margin, transform, task_weighting)
        check_range("(0, 1]", max_fpr=max_fpr)
        check_range("[0, 1)", min_tpr=min_tpr)
        check_positive(lr_dual=lr_dual, lr_positive=lr_positive, lr_level=lr_level)
        self.max_fpr, self.worst = max_fpr, 1 - min_tpr
        self.lr_dual, self.lr_positive, self.lr_level = lr_dual, lr_positive, lr_level
        self.own = PerPositive(labels, self.task_weight, start=(0.0, 1.0))  # s_i and y_i
        self.register_buffer("level", torch.zeros_like(self.task_weight))  # s'

    def estimate(self, entries: WeightedScores) -> tuple[Tensor, Gradients]:
        """$L_k$ averaged over the tasks of the batch."""
        pairs = Pairs.of(entries, self.capacity)
        slots = self.own.find(entries, pairs)
        score, slope = self.squash(entries)
        negative = entries.negative / self.max_fpr
        old = self.own.read(slots)
        own, dual = old.unbind(1)
        top = PairsAbove.of(pairs, score, self.margin, own, negative)
        mass = pairs.of_task(entries.negative_mass)  # one, or one in expectation
        inner = own * mass + top.excess  # g
        level = entries.gather(self.level)
        level_mass = pairs.of_task(level * entries.negative_mass)
        short = (inner - level_mass) / self.worst
        dual = (dual + self.lr_dual * short).clamp(0, 1)
        scale, pull = pairs.of_task(entries.scale), dual / self.worst
        share = pairs.weight * scale
        value = share.dot(dual * short + level_mass)
        mass_above, d_score = top.lower(share * pull)
        if self.training:
            moved = own - self.lr_positive * pull * (mass - mass_above)
            self.own.store(slots, old, torch.stack([moved, dual], 1), pairs.known.logical_and(scale))
            slope_of_level = pairs.weight * mass * (1 - pull)
            total = torch.zeros_like(entries.scale).index_add_(0, pairs.columns, slope_of_level)
            entries.scatter_(self.level, level - self.lr_level * total)
        return self.held(entries, value, d_score, slope)
