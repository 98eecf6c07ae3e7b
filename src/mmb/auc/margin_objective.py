"""The min-max margin loss (the pairwise square loss without pairs), its class means and its dual."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from mmb._numbers import check_range
from mmb.auc.labels import Labels
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.auc.score_objective import ScoreObjective, Transform
from mmb.trees import add_scaled


class MarginTerms(NamedTuple):
    """The margin loss of each task and HALF its derivatives (the factor two is cheapest at the end)."""

    dual: Tensor  # before its step, [k]
    value: Tensor  # L_k, [k]
    d_dual: Tensor  # c + E-[h] - E+[h] - alpha, [k]
    d_score: Tensor  # [rows, k]
    d_mean_positive: Tensor  # [k]
    d_mean_negative: Tensor  # [k]


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

    def margin_terms(self, entries: WeightedScores, score: Tensor, negative: Tensor) -> MarginTerms:
        r"""The margin loss of scores `h` and negative weights, both `[rows, k]`, without task weights.

        $$
        L = E_+[(h-a)^2] + E_-[(h-b)^2] + 2 \alpha\,(c + E_-[h] - E_+[h]) - \alpha^2
        $$

        where $E_\pm$ are weighted sums. In the dual term the class means are estimated as
        $a + E_+[h-a]$ and $b + E_-[h-b]$, with $a, b$ held fixed there: equal to $E_\pm[h]$ whenever the
        weights sum to one, of less variance when they do so only in expectation (dense batches), and the
        tracked mean if a batch lacks the class.
        """
        a, b, dual = (entries.gather(s) for s in (self.mean_positive, self.mean_negative, self.dual))
        positive = entries.positive
        from_positive, from_negative = score - a, score - b
        pull_positive, pull_negative = positive * from_positive, negative * from_negative
        sum_positive, sum_negative = pull_positive.sum(0), pull_negative.sum(0)
        shortfall = self.margin + (b + sum_negative) - (a + sum_positive)
        d_dual = shortfall - dual
        variance = torch.addcmul(pull_positive * from_positive, pull_negative, from_negative).sum(0)
        return MarginTerms(
            dual,
            value=torch.addcmul(variance, dual, shortfall + d_dual),
            d_dual=d_dual,
            d_score=torch.addcmul(pull_positive + pull_negative, dual, negative - positive),
            d_mean_positive=-sum_positive,
            d_mean_negative=-sum_negative,
        )

    def conclude(
        self, entries: WeightedScores, terms: MarginTerms, d_logits: Tensor
    ) -> tuple[Tensor, Gradients]:
        """Weigh the tasks and, in place, HALF the derivative `[rows, k]` by the logits; move the duals."""
        if self.training:
            step = add_scaled(terms.dual, 2 * self.lr_dual, terms.d_dual)
            entries.scatter_(self.dual, self.project_dual(step))
        twice = 2 * entries.scale
        return (entries.scale * terms.value).sum(), [
            (entries.logits, d_logits.mul_(twice)),
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
