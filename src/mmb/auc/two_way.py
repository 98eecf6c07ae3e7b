"""TwoWayPartialAUC: partial AUC bounded in both rates, by min-max bilevel optimization."""

from dataclasses import replace

import torch
from torch import Tensor

from mmb._numbers import check_range
from mmb.auc.labels import Labels
from mmb.auc.partial import PartialAUC
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.soft_quantiles import Gradient, SoftQuantiles
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.auc.score_objective import Transform


class TwoWayPartialAUC(PartialAUC):
    r"""AUC where the false positive rate is at most `max_fpr` and the true positive rate at least `min_tpr`.

    What counts are the negatives ranked highest, a share of `max_fpr`, and the positives ranked lowest, a
    share of `1 - min_tpr`. Each task tracks a threshold for both, the solutions of two lower problems of one
    number each ([`SoftQuantiles`][mmb.auc.parts.soft_quantiles.SoftQuantiles]), and selects softly. The rest
    is as in [`PartialAUC`][mmb.auc.PartialAUC], with the selections $s_+$ and $s_-$:

    $$
    L_k = E_+[s_+ (h-a)^2] + E_-[s_- (h-b)^2] + 2 \alpha\,(c + E_-[s_- h] - E_+[s_+ h]) - \alpha^2
    $$

    Args:
        labels: The training labels.
        max_fpr: Largest false positive rate, in (0, 1].
        min_tpr: Smallest true positive rate, in (0, 1).
        margin: `c`.
        transform: As in `PartialAUC`.
        gradient: `"full"`: the hypergradient, through both selections and thresholds. `"practical"`: the
            selections are held fixed.
        lr_dual: Step size of the dual.
        lr_threshold: Step size of the thresholds, in score units per unit of rate.
        beta: Weight of the newest curvature in the tracked Hessians, in (0, 1].
        tau1: Smoothing of the quantiles, in score units.
        temperature: Of the selectors, in score units; None is `tau1`.
        tau2: Strong convexity of the lower problems.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
    """

    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        max_fpr: float = 0.1,
        min_tpr: float = 0.5,
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
    ) -> None:
        check_range("(0, 1)", "0 is PartialAUC", min_tpr=min_tpr)
        super().__init__(
            labels,
            max_fpr=max_fpr,
            margin=margin,
            transform=transform,
            gradient=gradient,
            lr_dual=lr_dual,
            lr_threshold=lr_threshold,
            beta=beta,
            tau1=tau1,
            temperature=temperature,
            tau2=tau2,
            task_weighting=task_weighting,
            anchor=0.0,
        )
        of_negatives = self.tracked
        self.tracked_positive = SoftQuantiles(  # of the mirrored scores, so their signs are changed
            1 - min_tpr,
            0.0,
            self.task_weight,
            start=-0.5 if transform == "sigmoid" else 0.0,
            lr=of_negatives.lr,
            beta=beta,
            temperature=of_negatives.temperature,
            tau1=of_negatives.tau1,
            tau2=tau2,
        )

    def estimate(self, entries: WeightedScores) -> tuple[Tensor, Gradients]:
        """$L_k$ averaged over the tasks of the batch, at dual and thresholds before their steps."""
        score, slope = self.squash(entries)
        cut = score if self.transform == "sigmoid" else entries.logits
        mirrored = entries.mirrored()
        negatives = self.tracked.look(entries, cut)
        positives = self.tracked_positive.look(mirrored, -cut)
        lowest = replace(entries, positive=self.tracked_positive.select(mirrored, positives))
        terms = self.margin_terms(lowest, score, self.tracked.select(entries, negatives))
        d_logits = terms.d_score * slope
        if self.gradient == "full":
            from_a = score - entries.gather(self.mean_positive)
            from_b = score - entries.gather(self.mean_negative)
            # halves of (h-b)^2 + 2 alpha (h-b) and (h-a)^2 - 2 alpha (h-a)
            of_negative = torch.addcmul(terms.dual * from_b, from_b, from_b, value=0.5)
            of_positive = torch.addcmul(-terms.dual * from_a, from_a, from_a, value=0.5)
            d_cut = self.tracked.through_selection(entries, negatives, of_negative)
            d_cut = d_cut - self.tracked_positive.through_selection(mirrored, positives, of_positive)
            d_logits = d_logits + (d_cut * slope if self.transform == "sigmoid" else d_cut)
        if self.training:
            self.tracked.step(entries, negatives)
            self.tracked_positive.step(mirrored, positives)
        return self.conclude(entries, terms, d_logits)

    def selected(self, entries: WeightedScores) -> tuple[Tensor, Tensor]:
        """The weights of positives and of negatives in the range, `[rows, k]`."""
        _, negative = super().selected(entries)
        mirrored = entries.mirrored()
        tracking = self.tracked_positive.look(mirrored, -self.cut(entries))
        return self.tracked_positive.select(mirrored, tracking), negative

    @torch.no_grad()
    def warm_start(self, scores: Tensor, labels: Tensor) -> None:
        """Put thresholds, means and dual at their optimum; what has no labels here stays."""
        entries = self.entries(scores, labels).averaged()
        self.tracked_positive.warm_start(entries.mirrored(), -self.cut(entries))
        super().warm_start(scores, labels)
