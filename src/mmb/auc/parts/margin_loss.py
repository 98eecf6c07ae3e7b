"""The min-max margin loss: the pairwise square loss without pairs, its derivatives, the state it needs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from mmb.auc.labels import Labels
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.score_transforms import ScoreObjective, Transform
from mmb.auc.parts.weighted_scores import Entries


class MarginTerms(NamedTuple):
    """The margin loss of each task and HALF its derivatives (the factor two is cheapest left to the end).

    Attributes:
        value: `L_k`, `[k]`.
        shortfall: `c + E-[h] - E+[h]`, `[k]`: half the derivative by the dual, plus the dual.
        d_score: Half the derivative by the scores, `[rows, k]`.
        d_mean_positive: Half the derivative by `a`, `[k]`.
        d_mean_negative: Half the derivative by `b`, `[k]`.
    """

    value: Tensor
    shortfall: Tensor
    d_score: Tensor
    d_mean_positive: Tensor
    d_mean_negative: Tensor


def margin_terms(
    score: Tensor,
    positive: Tensor,
    negative: Tensor,
    mean_positive: Tensor,
    mean_negative: Tensor,
    dual: Tensor,
    margin: float,
) -> MarginTerms:
    r"""Value and derivatives of the margin loss of each task.

    $$
    L = E_+[(h-a)^2] + E_-[(h-b)^2] + 2 \alpha\,(c + E_-[h] - E_+[h]) - \alpha^2
    $$

    where $E_\pm$ are weighted sums. In the dual term the class means are estimated as
    $a + E_+[h-a]$ and $b + E_-[h-b]$, with $a, b$ held fixed there: equal to
    $E_\pm[h]$ whenever the weights sum to one, of less variance when they do so only in expectation
    (dense batches), and the tracked mean where a batch lacks the class.

    Args:
        score: `h`, `[rows, k]`.
        positive: Weights of the positive entries, `[rows, k]`.
        negative: Weights of the negative entries, `[rows, k]`.
        mean_positive: `a`, `[k]`.
        mean_negative: `b`, `[k]`.
        dual: `alpha`, `[k]`.
        margin: `c`.

    Returns:
        The terms, task weights not applied.
    """
    from_positive, from_negative = score - mean_positive, score - mean_negative
    pull_positive, pull_negative = positive * from_positive, negative * from_negative
    sum_positive, sum_negative = pull_positive.sum(0), pull_negative.sum(0)
    shortfall = margin + (mean_negative + sum_negative) - (mean_positive + sum_positive)
    variance = torch.addcmul(pull_positive * from_positive, pull_negative, from_negative).sum(0)
    return MarginTerms(
        value=variance + dual * (2 * shortfall - dual),
        shortfall=shortfall,
        d_score=torch.addcmul(pull_positive + pull_negative, dual, negative - positive),
        d_mean_positive=-sum_positive,
        d_mean_negative=-sum_negative,
    )


class MarginObjective(ScoreObjective):
    """An objective built on the margin loss: the class means are parameters, the dual is block state.

    Args:
        labels: The training labels.
        margin: `c`.
        scores: What the loss compares, `h`; see [`MinMaxAUC`][mmb.auc.minmax.MinMaxAUC].
        lr_dual: Step size of the dual's gradient ascent.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].

    Raises:
        ValueError: If `scores` is unknown, or `lr_dual` outside (0, 1).
    """

    dual: Tensor

    def __init__(
        self,
        labels: Labels | Tensor,
        margin: float,
        scores: Transform,
        lr_dual: float,
        task_weighting: float,
    ) -> None:
        super().__init__(labels, margin, scores, task_weighting)
        if not 0 < lr_dual < 1:
            raise ValueError(f"lr_dual must be in (0, 1), beyond which the dual diverges; got {lr_dual}")
        self.lr_dual = lr_dual
        start = 0.0 if scores == "logit" else 0.5  # the score of a model that knows nothing
        self.mean_positive = nn.Parameter(torch.full_like(self.task_weight, start))  # a
        self.mean_negative = nn.Parameter(torch.full_like(self.task_weight, start))  # b
        self.register_buffer("dual", torch.full_like(self.task_weight, margin))  # alpha

    def project_dual(self, dual: Tensor) -> Tensor:
        """Keep the dual in its set; here all numbers."""
        return dual

    def conclude(
        self, entries: Entries, dual: Tensor, terms: MarginTerms, d_logits: Tensor
    ) -> tuple[Tensor, Gradients]:
        """Weigh the tasks and let the dual of the sampled ones take its step.

        Args:
            entries: The batch.
            dual: The dual of the batch's tasks, `[k]`.
            terms: The margin loss of each task.
            d_logits: Half the derivative by the logits, `[rows, k]`, task weights not applied.

        Returns:
            The mean over tasks of task weight times value, and its derivatives.
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
        """Warm start: put means `[m]` and dual there; a class without rows (NaN) is taken to be as the other.

        Its mean would else stay where scores of a model that knows nothing are, and pull all scores there.
        """
        a = torch.where(mean_positive.isfinite(), mean_positive, mean_negative)
        b = torch.where(mean_negative.isfinite(), mean_negative, mean_positive)
        dual = self.project_dual(self.margin + b - a)
        for state, new in ((self.mean_positive, a), (self.mean_negative, b), (self.dual, dual)):
            state.copy_(torch.where(a.isfinite(), new, state))

    @torch.no_grad()
    def diagnostics(self) -> dict[str, Tensor]:
        """`gap`: mean of `a - b`, which should rise to the margin; `dual_error`: how far duals lag.

        Means over the tasks that are trained.
        """
        gap = self.mean_positive - self.mean_negative
        error = (self.dual - self.project_dual(self.margin - gap)).abs()
        return {"gap": self.task_mean(gap), "dual_error": self.task_mean(error)}
