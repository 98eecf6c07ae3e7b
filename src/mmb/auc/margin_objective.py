"""What objectives with the min-max margin loss share: class means, the dual, its step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mmb._numbers import check_range
from mmb.auc.labels import Labels
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.margin_loss import MarginTerms
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.auc.score_objective import ScoreObjective, Transform


class MarginObjective(ScoreObjective):
    """An objective with the margin loss: the class means are parameters, the dual is block state."""

    rate_names: tuple[str, ...] = ("lr_dual",)

    dual: Tensor

    def __init__(
        self,
        labels: Labels | Tensor,
        margin: float,
        transform: Transform,
        lr_dual: float,
        task_weighting: float,
    ) -> None:
        super().__init__(labels, margin, transform, task_weighting)
        check_range("(0, 1)", "beyond it the dual diverges", lr_dual=lr_dual)
        self.lr_dual = lr_dual
        start = 0.0 if transform == "logit" else 0.5  # the score of a model that knows nothing
        self.mean_positive = nn.Parameter(torch.full_like(self.task_weight, start))  # a
        self.mean_negative = nn.Parameter(torch.full_like(self.task_weight, start))  # b
        self.register_buffer("dual", torch.full_like(self.task_weight, margin))  # alpha

    def project_dual(self, dual: Tensor) -> Tensor:
        """Keep the dual in its set: here all numbers."""
        return dual

    def conclude(
        self, entries: WeightedScores, dual: Tensor, terms: MarginTerms, d_logits: Tensor
    ) -> tuple[Tensor, Gradients]:
        """Weigh the tasks, and move the dual `[k]` of the sampled ones.

        `d_logits` is half the derivative by the logits, `[rows, k]`, without task weights.
        """
        if self.training:
            step = dual + self.lr_dual * 2 * (terms.shortfall - dual)
            entries.scatter_(self.dual, self.project_dual(step))
        twice = 2 * entries.scale
        return (entries.scale * terms.value).sum(), [
            (entries.logits, d_logits * twice),
            (self.mean_positive, entries.spread(terms.d_mean_positive * twice, self.num_tasks)),
            (self.mean_negative, entries.spread(terms.d_mean_negative * twice, self.num_tasks)),
        ]

    @torch.no_grad()
    def place(self, mean_positive: Tensor, mean_negative: Tensor) -> None:
        """Warm start: put means `[m]` and dual there; a class without rows (NaN) takes the other's mean.

        Its own mean still belongs to an untrained model, and would pull all scores there.
        """
        a = torch.where(mean_positive.isfinite(), mean_positive, mean_negative)
        b = torch.where(mean_negative.isfinite(), mean_negative, mean_positive)
        dual = self.project_dual(self.margin + b - a)
        for state, new in ((self.mean_positive, a), (self.mean_negative, b), (self.dual, dual)):
            state.copy_(torch.where(a.isfinite(), new, state))

    @torch.no_grad()
    def diagnostics(self) -> dict[str, Tensor]:
        """`gap`: mean of `a - b`, which should rise to the margin; `dual_error`: how far duals lag."""
        gap = self.mean_positive - self.mean_negative
        error = (self.dual - self.project_dual(self.margin - gap)).abs()
        return {"gap": self.task_mean(gap), "dual_error": self.task_mean(error), **super().diagnostics()}
