"""MinMaxAUC: multi-task AUC maximization with the min-max margin loss (mAUC)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from mmb.auc.entries import Entries
from mmb.auc.labels import Labels
from mmb.auc.objective import Objective, with_gradient
from mmb.auc.scores import check_transform, squash


class MinMaxAUC(Objective):
    r"""AUC of every task, by its min-max form.

    The pairwise square loss :math:`E_{+-}[(c - h_+ + h_-)^2]` of task ``k`` equals
    :math:`\min_{a,b} \max_{\alpha} L_k`, with

    .. math:: L_k = E_+[(h-a)^2] + E_-[(h-b)^2] + 2 \alpha\,(c + E_-[h] - E_+[h]) - \alpha^2,
              \qquad \alpha \ge 0,

    which needs no pairs. ``a`` and ``b`` (the class means) are parameters, moved by your optimizer together
    with the model; the dual ``alpha`` is block state, moved here by projected gradient ascent:
    :math:`\alpha \leftarrow [\alpha + \text{lr\_dual} \cdot 2 (c + E_-[h] - E_+[h] - \alpha)]_+`.

    In the dual term the class means are estimated as :math:`a + E_+[h-a]` and :math:`b + E_-[h-b]`: equal to
    :math:`E_\pm[h]` whenever the class weights of a batch sum to one, of less variance when they do so only
    in expectation (dense batches), and the tracked mean where the batch lacks the class.

    Args:
        labels: The training labels.
        margin: ``c``.
        scores: ``"sigmoid"`` or ``"logit"``.
        lr_dual: Step size of the dual; 0.5 would replace it by the batch's own optimum.
        task_weighting: See :class:`~mmb.auc.objective.Objective`.
    """

    dual: Tensor

    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        margin: float = 1.0,
        scores: Literal["sigmoid", "logit"] = "sigmoid",
        lr_dual: float = 0.1,
        task_weighting: float = 0.0,
    ) -> None:
        super().__init__(labels, task_weighting)
        check_transform(scores, ("sigmoid", "logit"))
        if not 0 < lr_dual < 1:
            raise ValueError(f"lr_dual must be in (0, 1), beyond which the dual diverges; got {lr_dual}")
        self.margin, self.scores, self.lr_dual = margin, scores, lr_dual
        start = 0.5 if scores == "sigmoid" else 0.0  # the score of a model that knows nothing
        self.mean_positive = nn.Parameter(torch.full_like(self.task_weight, start))  # a
        self.mean_negative = nn.Parameter(torch.full_like(self.task_weight, start))  # b
        self.register_buffer("dual", torch.full_like(self.task_weight, max(margin, 0.0)))  # alpha

    @torch.no_grad()
    def warm_start(self, scores: Tensor, labels: Tensor) -> None:
        """Put means and dual where they belong for the current model.

        Args:
            scores: Logits ``[n, m]``.
            labels: ``[n, m]`` with gaps. Tasks without one of the classes here keep their state.
        """
        entries = self.entries(scores, labels)
        score, _ = squash(entries.logits, self.scores)
        # class means over these very rows, whatever the rates of the training labels
        positive, negative = (w / w.sum(0) for w in (entries.positive, entries.negative))
        mean_positive, mean_negative = (positive * score).sum(0), (negative * score).sum(0)
        dual = (self.margin + mean_negative - mean_positive).clamp(min=0)
        there = dual.isfinite()
        for state, new in (
            (self.mean_positive, mean_positive),
            (self.mean_negative, mean_negative),
            (self.dual, dual),
        ):
            state.copy_(torch.where(there, new, state))

    def loss(self, entries: Entries) -> Tensor:
        """:math:`L_k` averaged over the tasks of the batch, at the dual before its step."""
        with torch.no_grad():
            a, b, dual = (entries.gather(s) for s in (self.mean_positive, self.mean_negative, self.dual))
            score, slope = squash(entries.logits, self.scores)
            positive, negative = entries.positive, entries.negative
            from_a, from_b = positive * (score - a), negative * (score - b)
            sum_a, sum_b = from_a.sum(0), from_b.sum(0)
            spread = (from_a * (score - a)).sum(0) + (from_b * (score - b)).sum(0)
            shortfall = self.margin + (b + sum_b) - (a + sum_a)  # c + E-[h] - E+[h]
            value = spread + 2 * dual * shortfall - dual**2
            d_score = from_a + from_b + dual * (negative - positive)  # half of it
            scale = 2 * entries.scale
            gradients = {
                entries.logits: d_score * slope * scale,
                self.mean_positive: entries.spread(-sum_a * scale, self.num_tasks),
                self.mean_negative: entries.spread(-sum_b * scale, self.num_tasks),
            }
            if self.training:
                new = dual + self.lr_dual * 2 * (shortfall - dual)
                entries.scatter_(self.dual, new.clamp(min=0))
        return with_gradient((entries.scale * value).sum(), gradients)

    def diagnostics(self) -> dict[str, Tensor]:
        """``gap``: mean of ``a - b``, which should rise to the margin; ``dual_error``: how far duals lag."""
        with torch.no_grad():
            gap = self.mean_positive - self.mean_negative
            error = (self.dual - (self.margin - gap).clamp(min=0)).abs()
            return {"gap": gap.mean(), "dual_error": error.mean()}
