"""ConstrainedRecall: best recall while the false positive rate is bounded, with a multiplier per task."""

import torch
from torch import Tensor
from torch.nn import functional

from mmb._numbers import check_positive, check_range
from mmb.auc.labels import Labels
from mmb.auc.objective import Objective
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.weighted_scores import WeightedScores


class ConstrainedRecall(Objective):
    r"""Recall of the decision `logit > 0`, under a constraint on its false positive rate in every task.

    $$
    \min \; E_+[\log(1+e^{-z})] \quad \text{subject to} \quad E_-[\phi(z)] \le \rho,
    \qquad \phi(z) = \text{sigmoid}(z / \text{temperature}),
    $$

    by its Lagrangian, with a multiplier $\nu_k \ge 0$ for each task:

    $$
    L_k = E_+[\log(1+e^{-z})] + \nu_k \Big( \frac{E_-[\phi(z)]}{\rho} - 1 \Big),
    \qquad \nu_k \leftarrow \Big[ \nu_k + \text{lr\_dual} \Big( \frac{E_-[\phi(z)]}{\rho} - 1 \Big) \Big]_+
    $$

    Unlike [`RecallAtFPR`][mmb.auc.RecallAtFPR], it fixes the threshold and moves the scores: deploy the model
    as `model(x) > 0`. Logs have the tracked `fpr` of that decision (the first visit sets it), and the share
    of `feasible` tasks.

    Args:
        labels: The training labels.
        fpr: $\rho$, the largest false positive rate, in (0, 1).
        temperature: Smoothing of the rate, in logits.
        lr_dual: Step size of the multipliers.
        beta: Weight of the newest batch in the logged rates, in (0, 1].
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
    """

    rate_names = ("lr_dual",)

    dual: Tensor
    rate: Tensor

    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        fpr: float = 0.01,
        temperature: float = 1.0,
        lr_dual: float = 0.01,
        beta: float = 0.02,
        task_weighting: float = 0.0,
    ) -> None:
        super().__init__(labels, task_weighting)
        check_range("(0, 1)", fpr=fpr)
        check_range("(0, 1]", beta=beta)
        check_positive(temperature=temperature, lr_dual=lr_dual)
        self.fpr, self.temperature, self.lr_dual, self.beta = fpr, temperature, lr_dual, beta
        self.register_buffer("dual", torch.ones_like(self.task_weight))  # nu
        self.register_buffer("rate", -torch.ones_like(self.task_weight))  # of the decision; unseen at -1

    def estimate(self, entries: WeightedScores) -> tuple[Tensor, Gradients]:
        """$L_k$ averaged over the tasks of the batch, at the multipliers before their step."""
        logits, dual = entries.logits, entries.gather(self.dual)
        per_rate = entries.negative / self.fpr
        phi = torch.sigmoid(logits / self.temperature)
        excess = (per_rate * phi).sum(0) - entries.negative_mass  # times the mass, one in expectation
        value = (entries.positive * functional.softplus(-logits)).sum(0) + dual * excess
        bell = torch.addcmul(phi, phi, phi, value=-1) / self.temperature
        d_logits = torch.addcmul(-entries.positive * torch.sigmoid(-logits), dual * per_rate, bell)
        if self.training:
            entries.scatter_(self.dual, (dual + self.lr_dual * excess).clamp(min=0))
            now = (entries.negative * (logits > 0)).sum(0) / entries.negative_mass  # not finite without any
            old = entries.gather(self.rate)
            entries.scatter_(self.rate, torch.where(old < 0, now, torch.lerp(old, now, self.beta)))
        return (entries.scale * value).sum(), [(logits, d_logits * entries.scale)]

    @torch.no_grad()
    def diagnostics(self) -> dict[str, Tensor]:
        """`fpr`: mean tracked rate; `feasible`: share of tasks within the bound; `dual`: mean multiplier.

        A task whose negatives were not met yet has a rate of zero there, and does not count as feasible.
        """
        seen = self.rate >= 0
        feasible = (seen & (self.rate <= self.fpr)).to(self.rate.dtype)
        means = {"fpr": self.rate.clamp(min=0), "feasible": feasible, "dual": self.dual}
        return {name: self.task_mean(value) for name, value in means.items()}
