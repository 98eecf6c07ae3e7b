"""PairwisePartialAUC: partial AUC by a pairwise surrogate on logits above a tracked threshold."""

import math

import torch
from torch import Tensor

from mmb._numbers import as_number, check_choice, check_nonnegative, check_positive, check_sizes
from mmb.auc.labels import Labels
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.pairs import Pairs, Surrogate
from mmb.auc.parts.shift import PULL, hold_shift
from mmb.auc.parts.soft_quantiles import Gradient
from mmb.auc.parts.tracked_thresholds import TrackedThresholds
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.auc.threshold_objective import ThresholdObjective


class PairwisePartialAUC(ThresholdObjective):
    r"""AUC within a range of false positive rates, by pairs instead of a min-max form.

    The same tracked thresholds as [`PartialAUC`][mmb.auc.partial.PartialAUC] (on logits `z`) select the
    negatives; each is compared with each positive:

    $$
    L_k = E_+ E_-[\, s(z_-)\, \ell(z_+ - z_-) \,], \qquad z = \text{logit} / u_k
    $$

    with the selection `s` of [`SoftQuantiles`][mmb.auc.parts.soft_quantiles.SoftQuantiles] and
    $\ell(d) = \log(1+e^{c-d})$ or $\max(c-d, 0)^2$. It is bilevel, without a dual. Its cost grows with
    (positives of the batch) x (rows).

    The practical gradient does not see a shift of all scores of a task. So a weak pull keeps them about
    $\log(n_+ / n_-)$, where cross-entropy puts them.

    Args:
        labels: The training labels.
        max_fpr: Upper end of the range, in (0, 1].
        min_fpr: Lower end, in [0, max_fpr).
        surrogate: `"logistic"` or `"squared_hinge"`.
        margin: `c`, in units.
        unit: $u_k$, in logits. None is one from random weights; after `warm_start`, the deviation of the
            logits within the classes of the task, at least one: weights that were trained for long give large
            logits, of which a margin of one logit would see the lowest positives alone.
        gradient: `"full"`: the hypergradient, with the selection's dependence on the scores and, through
            the threshold, on all negatives. `"practical"`: the selection is held fixed.
        lr_threshold: Step size of the thresholds, in units per unit of rate.
        beta: Weight of the newest curvature in the tracked Hessian, in (0, 1].
        tau1: Smoothing of the quantile, in units.
        temperature: Of the selector, in units.
        tau2: Strong convexity of the lower problem; biases the rate by `tau2 * threshold`.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
        anchor: Weight of cross-entropy after `warm_start`, when training continues from trained weights;
            0 for none. See [`Anchor`][mmb.auc.parts.anchor.Anchor].
        capacity: Most positives used per batch; None is all. A number makes all shapes fixed, so that nothing
            waits for a GPU; positives beyond it are dropped, so choose it well above what occurs. The
            trainer chooses it for steps that are captured.
    """

    shift_pull: float = PULL

    unit: Tensor

    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        max_fpr: float = 0.1,
        min_fpr: float = 0.0,
        surrogate: Surrogate = "logistic",
        margin: float = 1.0,
        unit: float | None = None,
        gradient: Gradient = "practical",
        lr_threshold: float = 1.0,
        beta: float = 0.1,
        tau1: float = 0.2,
        temperature: float = 0.5,
        tau2: float = 1e-4,
        task_weighting: float = 0.0,
        anchor: float = 4.0,
        capacity: int | None = None,
    ) -> None:
        super().__init__(labels, task_weighting)
        check_nonnegative(anchor=anchor)
        self.anchor = anchor
        check_choice(Surrogate, surrogate=surrogate)
        check_choice(Gradient, gradient=gradient)
        check_sizes(capacity=capacity)
        number = as_number(margin)
        if not 0 <= number < math.inf or (number == 0 and surrogate == "squared_hinge"):
            raise ValueError(
                "margin: expected a positive finite number (or 0 with the logistic surrogate), "
                f"got {margin!r}"
            )
        self.surrogate, self.margin, self.gradient = surrogate, margin, gradient
        self.capacity = capacity
        check_positive(unit=1.0 if unit is None else unit)
        self.fixed_unit = unit is not None
        self.register_buffer("unit", torch.full_like(self.task_weight, 1.0 if unit is None else unit))  # u
        self.tracked = TrackedThresholds(
            max_fpr,
            min_fpr,
            self.task_weight,
            start=0.0,
            lr=lr_threshold,
            beta=beta,
            temperature=temperature,
            tau1=tau1,
            tau2=tau2,
        )

    def estimate(self, entries: WeightedScores) -> tuple[Tensor, Gradients]:
        """$L_k$ averaged over the tasks of the batch, at thresholds before their step."""
        score = self.cut(entries)
        tracking = self.tracked.look(entries, score)
        pairs = Pairs.of(entries, self.capacity)
        losses = pairs.losses(score, self.margin, self.surrogate, itself=True)
        selected = self.tracked.select(entries, tracking)
        loss, d_own = losses.of_positives(selected)
        value = (pairs.weight * pairs.of_task(entries.scale) * loss).sum()
        d_logits = pairs.less_own(selected * losses.slope_of_entries(pairs.weight), pairs.weight * d_own)
        if self.gradient == "full":
            payoff = losses.of_entries(pairs.weight)  # E+[l(z+ - z)] of every row
            d_logits = d_logits + self.tracked.through_selection(entries, tracking, payoff)
        d_logits.mul_(entries.scale / entries.gather(self.unit))
        if self.training:
            self.tracked.step(entries, tracking)
        if self.gradient == "practical":
            pull, d_pull = hold_shift(entries, entries.gather(self.log_odds()), self.shift_pull)
            value = value + (entries.scale * pull).sum()
            d_logits.addcmul_(entries.scale, d_pull)
        return value, [(entries.logits, d_logits)]

    def cut(self, entries: WeightedScores) -> Tensor:
        """`z`: logits in units of their task."""
        return entries.logits / entries.gather(self.unit)

    @torch.no_grad()
    def warm_start(self, scores: Tensor, labels: Tensor) -> None:
        """Set the units, and put thresholds at the empirical quantiles; what has no labels here stays."""
        entries = self.entries(scores, labels).averaged()
        positive, negative = (_variance(entries.logits, one) for one in (entries.positive, entries.negative))
        unit = (0.5 * (positive + negative)).sqrt().clamp(min=1)
        if not self.fixed_unit:
            self.unit.copy_(torch.where(unit.isfinite(), unit, self.unit))
        super().warm_start(scores, labels)

    def reserve(self, positives: int) -> None:
        """Compare this many positives of every batch, unless a capacity was given."""
        self.capacity = positives if self.capacity is None else self.capacity


def _variance(scores: Tensor, weight: Tensor) -> Tensor:
    """Variance `[k]` of scores with weights that sum to one, `[rows, k]`."""
    return (weight * (scores - (weight * scores).sum(0)).square()).sum(0)
