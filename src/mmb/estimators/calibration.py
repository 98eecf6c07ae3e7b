"""From logits to probabilities and to operating points, by held-out rows, for all tasks at once.

Scores are `[n, m]`, labels int8 `[n, m]` with -1 for missing, weights of rows `[n]`.
"""

import torch
from torch import Tensor

from mmb.estimators.network import both_classes
from mmb.log_odds import fit_log_odds
from mmb.quantiles import negative_quantiles

_ROUNDING = 1e-9  # of log-odds


class Calibration:
    """The map `a z + b` from logits to log-odds, and the `cut` above which each task is called positive.

    All is `[m]`. Tasks are `usable` if both classes have been seen; the others have `constant` log-odds.
    """

    def __init__(self, num_tasks: int) -> None:
        self.slope = torch.ones(num_tasks, dtype=torch.float64)  # a; the offset is b
        self.offset, self.cut, self.constant = torch.zeros(3, num_tasks, dtype=torch.float64)
        self.usable = torch.zeros(num_tasks, dtype=torch.bool)

    def __call__(self, scores: Tensor) -> Tensor:
        """Log-odds of logits `[n, m]`."""
        return torch.where(self.usable, self.slope * scores + self.offset, self.constant)

    def fit(
        self, scores: Tensor, averaged: Tensor, labels: Tensor, weights: Tensor, max_fpr: float, mass: Tensor
    ) -> None:
        r"""Fit to some rows: log-odds of the tasks with both classes there, cuts of those with negatives.

        The cuts are at a false positive rate of `max_fpr` by `averaged`, logits with the spread of those to
        come. Tasks that lack a class in `mass [2, m]`, all negatives and positives seen so far, get constant
        log-odds, $\log (n_+ + 1/2) / (n_- + 1/2)$, and a cut of zero.
        """
        self.usable = (mass > 0).all(0)
        (slope,), offset = fit_log_odds(scores.unsqueeze(1), labels, weights)
        there = both_classes(labels)
        self.slope = torch.where(there, slope, self.slope)
        self.offset = torch.where(there, offset, self.offset)
        self.constant = ((mass[1] + 0.5) / (mass[0] + 0.5)).log()
        cut = fpr_thresholds(self(averaged), labels, weights, max_fpr)
        self.cut = torch.where(self.usable & ~cut.isnan(), cut, self.cut)

    def raise_cut(self, scores: Tensor, labels: Tensor, weights: Tensor, max_fpr: float) -> None:
        """Keep the rate on these rows, too: many of their scores may be equal, and just above the cut."""
        own = fpr_thresholds(self(scores), labels, weights, max_fpr) + _ROUNDING
        self.cut = torch.where(self.usable & (own > self.cut), own, self.cut)


def spread_as_averaged(
    logits: Tensor, fold: Tensor, labels: Tensor, weights: Tensor, cautious: Tensor | None = None
) -> Tensor:
    r"""Held-out scores of single networks, moved together as much as those of the average would be.

    Networks differ by chance, and their average less so; a threshold placed by the scores of single networks
    would let fewer negatives pass than it should. With $h$ the score of a row by the network that was trained
    without it, within each class

    $$
    h \mapsto \mathrm{E} h + \sqrt{1 - V / \mathrm{Var}(h)} \, (h - \mathrm{E} h),
    $$

    where $V$ is the variance that averaging removes: with $K$ networks, $1 - 1/K$ times the variance by
    chance on new rows. With $\bar s$ the mean of all networks, $\mathrm{Var}(h - \bar s)$ is too large an
    estimate of it, since networks know the rows they were trained on better. The variance among those
    networks, times $1 - 1/K$, is too small. $V$ is the geometric mean of the two; with only two networks, it
    is the first.

    Where $V$ is most of the variance, this also moves the classes apart by what may be chance. That does not
    harm a threshold, but probabilities would be near 0 and 1: for them, the factor under the root returns to
    one as $V$ rises from half of the variance to all of it. Then $h$ is `cautious`; for a threshold, that is
    None, and $h$ is found in the `logits` of each network, `[K, n, m]`, by the row's fold, -1 for none.
    """
    own = unseen_logits(logits, fold) if cautious is None else cautious
    if len(logits) == 1:
        return own
    gap = own - logits.mean(0)
    knew = (fold != torch.arange(len(logits)).unsqueeze(1)).unsqueeze(2).double()
    number = knew.sum(0)
    middle = (knew * logits).sum(0) / number
    among = (knew * (logits - middle).square()).sum(0) / (number - 1).clamp(min=1)
    found = own.clone()
    for value in (0, 1):
        there = labels == value
        share = there * weights.double().unsqueeze(1)
        share = share / share.sum(0).clamp(min=1e-12)
        center = (share * own).sum(0)
        by_chance = (share * (gap - (share * gap).sum(0)).square()).sum(0)
        if len(logits) > 2:
            by_chance = (by_chance * (1 - 1 / len(logits)) * (share * among).sum(0)).sqrt()
        spread = (share * (own - center).square()).sum(0)
        lost = (by_chance / spread.clamp(min=1e-12)).clamp(max=1)
        left = 1 - lost if cautious is None else torch.maximum(1 - lost, lost)
        found = torch.where(there, center + left.sqrt() * (own - center), found)
    return found


def fpr_thresholds(scores: Tensor, labels: Tensor, weights: Tensor, max_fpr: float) -> Tensor:
    """The lowest of its negatives' scores above which at most `max_fpr` of them lie, `[m]`; NaN if none."""
    mass = (labels == 0) * weights.double().unsqueeze(1)
    return negative_quantiles(scores, mass, [max_fpr]).squeeze(0)


def unseen_logits(logits: Tensor, fold: Tensor) -> Tensor:
    """Of `[K, n, ...]`, logits of each row by the network of its fold `[n]`; the mean if in no fold, -1."""
    found = logits.mean(0)
    there = fold >= 0
    found[there] = logits[fold[there], there]
    return found
