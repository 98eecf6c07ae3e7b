"""PAUCI: partial AUC as a min-max problem of single entries, with a smoothed hinge for the selection."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmb._numbers import check_positive, check_range
from mmb.auc.baselines.minibatch_partial import top_part
from mmb.auc.labels import Labels
from mmb.auc.margin_objective import MarginObjective
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.auc.score_objective import Transform


class PAUCI(MarginObjective):
    r"""Instance-wise partial AUC, after Shao et al. (2022): no pairs, no ranking, a single level.

    The mean over the top share $\rho$ of the negatives is the minimum over a level `s` of a mean of hinges,
    which is smoothed, $r(x) = T \log(1 + e^{x/T})$:

    $$
    L_k = E_+[(h-a)^2 - 2 \alpha h] + s + \tfrac1\rho E_-[r(q - s)] + 2 \alpha c - \alpha^2,
    \qquad q = (h-b)^2 + 2 \alpha h,
    $$

    minimized over the model, `a`, `b` and `s`, which are parameters, moved by your optimizer, and maximized
    over $\alpha \ge 0$, block state. Its step estimates the mean score of the top negatives as `PartialAUC`
    does, with a mass of one: with that of the hinge, which swings with $\alpha$, both swing ever more.
    [`PartialAUC`][mmb.auc.PartialAUC] has a lower problem for the threshold
    instead, in units of the scores.

    Args:
        labels: The training labels.
        max_fpr: $\rho$, in (0, 1].
        margin: `c`.
        transform: What the loss compares; see [`MinMaxAUC`][mmb.auc.minmax.MinMaxAUC].
        temperature: `T`.
        lr_dual: Step size of the dual.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
    """

    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        max_fpr: float = 0.1,
        margin: float = 1.0,
        transform: Transform = "sigmoid",
        temperature: float = 0.1,
        lr_dual: float = 0.1,
        task_weighting: float = 0.0,
    ) -> None:
        super().__init__(labels, margin, transform, lr_dual, task_weighting)
        check_range("(0, 1]", max_fpr=max_fpr)
        check_positive(temperature=temperature)
        self.max_fpr, self.temperature = max_fpr, temperature
        self.level = nn.Parameter(2 * margin * self.mean_negative.detach())  # s, at q of an untrained model

    def project_dual(self, dual: Tensor) -> Tensor:
        """The dual is not negative."""
        return dual.clamp(min=0)

    def estimate(self, entries: WeightedScores) -> tuple[Tensor, Gradients]:
        """$L_k$ averaged over the tasks of the batch, at the dual before its step."""
        score, slope = self.squash(entries)
        a, b, dual, level = (
            entries.gather(s) for s in (self.mean_positive, self.mean_negative, self.dual, self.level)
        )
        from_a, from_b = score - a, score - b
        excess = torch.addcmul(2 * dual * score, from_b, from_b) - level
        top = entries.negative / self.max_fpr
        selected = top * torch.sigmoid(excess / self.temperature)
        terms = self.margin_terms(entries, score, selected)
        hinge = (top * functional.softplus(excess / self.temperature)).sum(0) * self.temperature
        of_negative = level * entries.negative_mass + hinge
        of_positive = (entries.positive * from_a * from_a).sum(0)
        mean_positive = a - terms.d_mean_positive
        value = of_positive + of_negative + dual * (2 * (self.margin - mean_positive) - dual)
        loss, gradients = self.conclude(entries, terms._replace(value=value), terms.d_score * slope)
        d_level = entries.spread(entries.scale * (entries.negative_mass - selected.sum(0)), self.num_tasks)
        return loss, [*gradients, (self.level, d_level)]

    @torch.no_grad()
    def warm_start(self, scores: Tensor, labels: Tensor) -> None:
        """Put means, dual and level at their optimum; tasks without labels here keep theirs."""
        entries = self.entries(scores, labels).averaged()
        score = self.scores(entries)
        top = top_part(score, entries.negative.nan_to_num(), self.max_fpr)
        self.place((entries.positive * score).sum(0), (top * score).sum(0) / top.sum(0))
        lowest = torch.where(top > 0, score, torch.inf).amin(0)
        level = (lowest - self.mean_negative) ** 2 + 2 * self.dual * lowest
        self.level.copy_(torch.where(level.isfinite(), level, self.level))
