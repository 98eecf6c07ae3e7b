"""PartialAUC: multi-task one-way partial AUC maximization by min-max bilevel optimization (MMB-pAUC)."""

import torch
from torch import Tensor

from mmb._numbers import check_choice, check_nonnegative
from mmb._renamed import renamed_arguments
from mmb.auc.labels import Labels
from mmb.auc.margin_objective import MarginObjective
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.soft_quantiles import Gradient
from mmb.auc.parts.tracked_thresholds import TrackedThresholds
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.auc.score_objective import Transform
from mmb.auc.threshold_objective import ThresholdObjective


class PartialAUC(MarginObjective, ThresholdObjective):
    r"""AUC within a range of false positive rates `[min_fpr, max_fpr]`, for every task.

    Only the negatives ranked in that range count. Each task tracks the score threshold $\lambda$ at
    `max_fpr` (and a second one at `min_fpr` if that is positive) as its lower-level problem, see
    [`SoftQuantiles`][mmb.auc.parts.soft_quantiles.SoftQuantiles], and softly selects the
    negatives above it:

    $$
    L_k = E_+[(h-a)^2] + E_-[s\,(h-b)^2] + 2 \alpha\,(c + E_-[s\,h] - E_+[h]) - \alpha^2,
    \qquad s = \frac{\phi(z-\lambda_{max}) - \phi(z-\lambda_{min})}{\rho_{max}-\rho_{min}}
    $$

    with $\phi(u) = \text{sigmoid}(u / \text{temperature})$; `z` is what thresholds cut, `h` what
    the loss compares. $\alpha$ is not constrained.

    At its threshold the selection has mass one, $E_-[s] = 1$, if `temperature` equals `tau1` (the
    default). So in the dual term $E_-[s h]$ is estimated as $b + E_-[s (h - b)]$, with `b` held
    fixed there: the same at the exact threshold, but without the large term $b\,(E_-[s] - 1)$, which
    away from it drowns the rest of the full gradient.

    Args:
        labels: The training labels.
        max_fpr: Upper end of the range, in (0, 1].
        min_fpr: Lower end, in [0, max_fpr).
        margin: `c`.
        transform: `"sigmoid"`: `h = z = sigmoid(logit)`; `"logit"`: `h = z = logit`; `"recentered"`:
            `z = logit` and $h = \mathrm{sigmoid}(\text{logit} - \log(n_+ / n_-))$, spread about one half
            however rare the positives are; see [`MinMaxAUC`][mmb.auc.minmax.MinMaxAUC].
        gradient: `"full"`: the hypergradient, with the selection's dependence on the scores and, through
            the threshold, on all negatives. `"practical"`, the default: the selection is held fixed; in
            small experiments it generalized a little better.
        lr_dual: Step size of the dual; 0.5 would replace it by the batch's own optimum.
        lr_threshold: Step size of the thresholds, in score units per unit of rate.
        beta: Weight of the newest curvature in the tracked Hessian, in (0, 1].
        tau1: Smoothing of the quantile, in score units.
        temperature: Of the selector $\phi$, in score units; None is `tau1`.
        tau2: Strong convexity of the lower problem; biases the rate by `tau2 * threshold`.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
        anchor: Weight of cross-entropy after `warm_start`, when training continues from trained weights;
            0 for none. See [`Anchor`][mmb.auc.parts.anchor.Anchor].

    The defaults (None) of `lr_threshold` and `tau1` follow the units of `z`: 0.1 and 0.05 for
    probabilities, 1 and 0.5 for logits.
    """

    @renamed_arguments(scores="transform")
    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        max_fpr: float = 0.1,
        min_fpr: float = 0.0,
        margin: float = 1.0,
        transform: Transform = "sigmoid",
        gradient: Gradient = "practical",
        lr_dual: float = 0.1,
        lr_threshold: float | None = None,
        beta: float = 0.1,
        tau1: float | None = None,
        temperature: float | None = None,
        tau2: float = 1e-4,
        task_weighting: float = 0.0,
        anchor: float = 4.0,
    ) -> None:
        check_choice(Gradient, gradient=gradient)
        super().__init__(labels, margin, transform, lr_dual, task_weighting)
        check_nonnegative(anchor=anchor)
        self.anchor = anchor
        self.gradient = gradient
        of_unit = transform == "sigmoid"  # the thresholds cut probabilities
        tau1 = tau1 if tau1 is not None else 0.05 if of_unit else 0.5
        self.tracked = TrackedThresholds(
            max_fpr,
            min_fpr,
            self.task_weight,
            start=0.5 if of_unit else 0.0,
            lr=lr_threshold if lr_threshold is not None else 0.1 if of_unit else 1.0,
            beta=beta,
            temperature=tau1 if temperature is None else temperature,
            tau1=tau1,
            tau2=tau2,
        )

    def estimate(self, entries: WeightedScores) -> tuple[Tensor, Gradients]:
        """$L_k$ averaged over the tasks of the batch, at dual and thresholds before their steps."""
        score, slope = self.squash(entries)
        cut = score if self.transform == "sigmoid" else entries.logits
        tracking = self.tracked.look(entries, cut)
        terms = self.margin_terms(entries, score, self.tracked.select(entries, tracking))
        d_logits = terms.d_score * slope
        if self.gradient == "full":
            from_b = score - entries.gather(self.mean_negative)
            # half of (h-b)^2 + 2 alpha (h-b)
            payoff = torch.addcmul(terms.dual * from_b, from_b, from_b, value=0.5)
            d_cut = self.tracked.through_selection(entries, tracking, payoff)
            d_logits = d_logits + (d_cut * slope if self.transform == "sigmoid" else d_cut)
        if self.training:
            self.tracked.step(entries, tracking)
        return self.conclude(entries, terms, d_logits)

    def cut(self, entries: WeightedScores) -> Tensor:
        """`z`, which the thresholds cut: probabilities, or logits."""
        return torch.sigmoid(entries.logits) if self.transform == "sigmoid" else entries.logits

    @torch.no_grad()
    def warm_start(self, scores: Tensor, labels: Tensor) -> None:
        """Put thresholds, means and dual at their optimum; what has no labels here stays."""
        super().warm_start(scores, labels)  # the thresholds
        entries = self.entries(scores, labels).averaged()
        score = self.scores(entries)
        self.place(*((weight * score).sum(0) / weight.sum(0) for weight in self.selected(entries)))

    def selected(self, entries: WeightedScores) -> tuple[Tensor, Tensor]:
        """The weights of positives and of negatives in the range, `[rows, k]`."""
        tracking = self.tracked.look(entries, self.cut(entries))
        return entries.positive, self.tracked.select(entries, tracking)
