"""PairwisePartialAUC: partial AUC by a pairwise surrogate on logits above a tracked threshold."""

from torch import Tensor

from mmb._numbers import check_choice, check_sizes
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
    L_k = E_+ E_-[\, s(z_-)\, \ell(z_+ - z_-) \,]
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
        margin: `c`.
        gradient: `"full"`: the hypergradient, with the selection's dependence on the scores and, through
            the threshold, on all negatives. `"practical"`: the selection is held fixed.
        lr_threshold: Step size of the thresholds, in logits per unit of rate.
        beta: Weight of the newest curvature in the tracked Hessian, in (0, 1].
        tau1: Smoothing of the quantile, in logits.
        temperature: Of the selector, in logits.
        tau2: Strong convexity of the lower problem; biases the rate by `tau2 * threshold`.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
        capacity: Most positives used per batch; None is all. A number makes all shapes fixed, so that nothing
            waits for a GPU; positives beyond it are dropped, so choose it well above what occurs. The
            trainer chooses it for steps that are captured.
    """

    shift_pull: float = PULL

    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        max_fpr: float = 0.1,
        min_fpr: float = 0.0,
        surrogate: Surrogate = "logistic",
        margin: float = 1.0,
        gradient: Gradient = "practical",
        lr_threshold: float = 1.0,
        beta: float = 0.1,
        tau1: float = 0.2,
        temperature: float = 0.5,
        tau2: float = 1e-4,
        task_weighting: float = 0.0,
        capacity: int | None = None,
    ) -> None:
        super().__init__(labels, task_weighting)
        check_choice(Surrogate, surrogate=surrogate)
        check_choice(Gradient, gradient=gradient)
        check_sizes(capacity=capacity)
        if not margin >= 0 or (margin == 0 and surrogate == "squared_hinge"):
            raise ValueError(f"margin: expected more than 0 (or 0 with the logistic surrogate), got {margin}")
        self.surrogate, self.margin, self.gradient = surrogate, margin, gradient
        self.capacity = capacity
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
        logits = entries.logits
        tracking = self.tracked.look(entries, logits)
        pairs = Pairs.of(entries, self.capacity)
        loss, d_short = pairs.losses(logits, self.margin, self.surrogate)
        selected = pairs.beside(tracking.selected.T.contiguous())
        d_logits = pairs.to_scores(d_short.mul_(selected), pairs.weight)
        if self.gradient == "full":
            payoff = pairs.by_task(loss, pairs.weight)  # E+[l(z+ - z)] of every row
            d_logits = d_logits + self.tracked.through_selection(entries, tracking, payoff.T)
        share = pairs.weight * entries.scale[pairs.columns]
        value = (share * loss.mul_(selected).sum(1)).sum()
        if self.training:
            self.tracked.step(entries, tracking)
        if self.gradient == "practical":
            pull, d_pull = hold_shift(entries, entries.gather(self.log_odds()), self.shift_pull)
            value, d_logits = value + (entries.scale * pull).sum(), d_logits + d_pull
        return value, [(logits, d_logits * entries.scale)]

    def reserve(self, positives: int) -> None:
        """Compare this many positives of every batch, unless a capacity was given."""
        self.capacity = positives if self.capacity is None else self.capacity
