"""SOPA and SOPAs (SOPA-s): partial AUC with one variable per positive, hard or soft."""

import math

import torch
from torch import Tensor

from mmb._numbers import check_nonnegative, check_positive, check_range
from mmb._renamed import renamed_arguments
from mmb.auc.labels import Labels
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.pairs import Pairs, PairsAbove
from mmb.auc.parts.per_positive import PerPositive
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.auc.per_positive_objective import PerPositiveObjective
from mmb.auc.score_objective import Transform

_LOG2_E = 1 / math.log(2)


class SOPA(PerPositiveObjective):
    r"""Partial AUC by a threshold on the pair losses of each positive (Zhu et al., 2022).

    $$
    L_k = E_{i+}\Big[ s_i + \frac1{\rho} E_{j-}\big[(\ell_{ij} - s_i)_+\big] \Big],
    \qquad \ell_{ij} = \max(c - h_i + h_j, 0)^2,
    $$

    minimized over the model and over $s_i$, one per positive, which take the subgradient step
    $s_i \leftarrow s_i - \text{lr}\,(1 - \tfrac1\rho E_{j-}[1_{\ell_{ij} > s_i}])$ when they are met.
    The estimate uses them before the step. Batches must carry `rows`.

    Args:
        labels: The training labels.
        max_fpr: $\rho$, in (0, 1].
        margin: `c`.
        transform: What the loss compares; see [`MinMaxAUC`][mmb.auc.minmax.MinMaxAUC].
        lr_positive: Step size of the variables.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
    """

    rate_names = ("lr_positive",)

    @renamed_arguments(scores="transform")
    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        max_fpr: float = 0.1,
        margin: float = 1.0,
        transform: Transform = "sigmoid",
        lr_positive: float = 0.3,
        task_weighting: float = 0.0,
    ) -> None:
        labels = labels if isinstance(labels, Labels) else Labels(labels)
        super().__init__(labels, margin, transform, task_weighting)
        check_range("(0, 1]", max_fpr=max_fpr)
        check_positive(lr_positive=lr_positive)
        self.max_fpr, self.lr_positive = max_fpr, lr_positive
        self.level = PerPositive(labels, self.task_weight, start=0.0)  # s

    def estimate(self, entries: WeightedScores) -> tuple[Tensor, Gradients]:
        """$L_k$ averaged over the tasks of the batch, at the variables before their step."""
        pairs = Pairs.of(entries, self.capacity)
        slots = self.level.find(entries, pairs)
        score, slope = self.squash(entries)
        negative = entries.negative / self.max_fpr
        level = self.level.read(slots)
        top = PairsAbove.of(pairs, score, self.margin, level, negative)
        mass = pairs.of_task(entries.negative_mass)  # one, or one in expectation
        share = pairs.weight * pairs.of_task(entries.scale)
        value = (share * (level * mass + top.excess)).sum()
        mass_above, d_score = top.lower(share)
        if self.training:
            self.level.store(slots, level, level - self.lr_positive * (mass - mass_above), pairs.known)
        return self.held(entries, value, d_score, slope)


class SOPAs(PerPositiveObjective):
    r"""Partial AUC by KL-regularized weights on the pair losses of each positive (Zhu et al., 2022).

    $$
    L_k = E_{i+}\big[ \lambda \log E_{j-}\, e^{\ell_{ij}/\lambda} \big],
    \qquad \ell_{ij} = \max(c - h_i + h_j, 0)^2.
    $$

    The inner mean is tracked per positive, $u_i \leftarrow (1-\gamma) u_i + \gamma\, E_{j-}
    e^{\ell_{ij}/\lambda}$ (kept as a logarithm; the first visit sets it), and the estimate weighs pairs by
    $e^{\ell_{ij}/\lambda}/u_i$ with the new $u_i$. Batches must carry `rows`.

    Args:
        labels: The training labels.
        temperature: $\lambda$: toward zero only the worst negative counts, for large values all do.
        beta: $\gamma$ in (0, 1], the weight of the newest batch.
        margin: `c`.
        transform: What the loss compares; see [`MinMaxAUC`][mmb.auc.minmax.MinMaxAUC].
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
        anchor: Weight of cross-entropy after `warm_start`, when training continues from trained weights;
            0 for none. See [`Anchor`][mmb.auc.parts.anchor.Anchor].
    """

    @renamed_arguments(momentum="beta", scores="transform")
    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        temperature: float = 0.3,
        beta: float = 0.5,
        margin: float = 1.0,
        transform: Transform = "sigmoid",
        task_weighting: float = 0.0,
        anchor: float = 4.0,
    ) -> None:
        labels = labels if isinstance(labels, Labels) else Labels(labels)
        super().__init__(labels, margin, transform, task_weighting)
        check_nonnegative(anchor=anchor)
        self.anchor = anchor
        check_positive(temperature=temperature)
        check_range("(0, 1]", beta=beta)
        self.temperature, self.beta = temperature, beta
        self.log_mean = PerPositive(labels, self.task_weight, start=-math.inf)  # log u; unseen at -inf

    def estimate(self, entries: WeightedScores) -> tuple[Tensor, Gradients]:
        """$L_k$ averaged over the tasks of the batch."""
        pairs = Pairs.of(entries, self.capacity)
        slots = self.log_mean.find(entries, pairs)
        score, slope = self.squash(entries)
        # in units in which the exponent is the square, to base two: exp2 is thrice as fast as exp on a CPU
        unit = math.sqrt(_LOG2_E / self.temperature)
        negative, score = entries.negative.T.contiguous(), unit * score
        lead, score = pairs.own(score) - unit * self.margin, score.T.contiguous()
        # below all others are the rows without weight: arithmetic is several times faster than comparisons
        rivals = score.add_(negative.sign().sub_(1), alpha=torch.finfo(score.dtype).max / 2)
        short = pairs.of_task(rivals).sub_(lead.unsqueeze(1)).clamp_(min=0)
        # the largest exponent is that of the highest negative: no pass over pairs looks for it
        peak = (pairs.of_task(rivals.amax(1)) - lead).clamp(min=0).square()
        terms = torch.addcmul(-peak.unsqueeze(1), short, short).exp2_()
        peak = peak / _LOG2_E
        now, old = peak + pairs.sums(negative, terms).log(), self.log_mean.read(slots)
        mixed = torch.logaddexp(old + _log(1 - self.beta), now + _log(self.beta))
        new = torch.where(old == -math.inf, now, torch.where(now == -math.inf, old, mixed))
        met = now != -math.inf  # there are negatives of the task in the batch (and NaN stays NaN)
        share = torch.where(met, pairs.weight * pairs.of_task(entries.scale), 0.0)
        value = self.temperature * (share * torch.where(met, new, 0.0)).sum()
        if self.training:
            self.log_mean.store(slots, old, new, pairs.known)
        per_term = (2 / unit) * share * torch.exp(torch.where(met, peak - new, 0.0))
        terms.mul_(short)
        d_own = per_term * pairs.sums(negative, terms)
        d_score = pairs.less_own((negative * pairs.by_entry(terms, per_term)).T, d_own)
        return self.held(entries, value, d_score, slope)


def _log(number: float) -> float:
    return math.log(number) if number > 0 else -math.inf
