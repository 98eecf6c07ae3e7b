"""From logits to probabilities and to operating points, by held-out rows, for all tasks at once.

Scores are `[n, m]`, labels int8 `[n, m]` with -1 for missing, weights of rows `[n]`.
"""

import torch
from torch import Tensor
from torch.nn import functional

from mmb.estimators.network import both_classes
from mmb.quantiles import negative_quantiles

_ROUNDING = 1e-9  # of log-odds
_SLOPE_PRIOR = 0.05  # weight of the prior on the logarithm of the slope, in rows
_SHARES_PRIOR = 1.0  # and of that on the logarithms of the shares of the models


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


def fit_log_odds(
    scores: Tensor, labels: Tensor, weights: Tensor, before: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    r"""Slopes and offset of each task such that $\text{sigmoid}(\sum_f a_f z_f + b)$ is a probability.

    The likelihood of $a > 0$ and $b$ is maximized with targets $(n_+ + 1) / (n_+ + 2)$ and
    $1 / (n_- + 2)$ in place of 1 and 0, so that it has a maximum however well the classes are separated
    (Platt, 1999); a weak prior keeps the slope finite where a class is absent. Slopes are positive: with one
    model, the order of scores is the order of probabilities. With several,
    $a_f \propto e^{\phi_f} / \text{deviation of } z_f$, and a prior takes all models to be equally good, or
    as good as they were `before`, by an earlier `a`. From logits `z [n, models, m]` this gives
    `a [models, m]` and `b [m]`, in float64.
    """
    z = scores.double()
    spread, mean = torch.std_mean(z, dim=0, correction=0)
    spread = torch.where(spread > 0, spread, 1.0)
    z = (z - mean) / spread
    positive, negative = ((labels == value) * weights.double().unsqueeze(1) for value in (1, 0))
    upper = (positive.sum(0) + 1) / (positive.sum(0) + 2)
    lower = 1 / (negative.sum(0) + 2)
    up = positive * upper + negative * lower  # weight of the target 1, and of the target 0
    down = positive * (1 - upper) + negative * (1 - lower)
    found = torch.zeros(2, z.shape[2], dtype=torch.float64, requires_grad=True)  # log of the sum of a, b
    leaning = torch.zeros(z.shape[1:], dtype=torch.float64, requires_grad=True)  # change of phi
    was = torch.zeros_like(leaning) if before is None else (before * spread).clamp(min=1e-12).log()
    optimizer = torch.optim.LBFGS([found, leaning], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        odds = found[0].exp() * ((was + leaning).softmax(0) * z).sum(1) + found[1]
        loss = (up * functional.softplus(-odds) + down * functional.softplus(odds)).sum()
        loss = loss + _SLOPE_PRIOR * found[0].square().sum() + _SHARES_PRIOR * leaning.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    slope = found[0].detach().exp() * (was + leaning.detach()).softmax(0) / spread
    return slope, found[1].detach() - (slope * mean).sum(0)


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
