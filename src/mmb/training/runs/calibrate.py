"""Probabilities from logits, fitted to labeled rows: for each task a curve or steps, whichever is better."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mmb._extras import require
from mmb.label_values import MISSING
from mmb.log_odds import fit_log_odds

_FOLDS = 5
_FEWEST = 20  # positives and negatives that steps need
_KNOTS = 64  # at most, for each task


@dataclass(frozen=True)
class Calibration:
    """How logits `[n, m]` become probabilities: for each task the curve of Platt, or a chain of lines.

    Attributes:
        slope, offset: Platt's log-odds are `slope * logit + offset`, `[m]`.
        logits, probabilities: The knots of the lines, `[m, K]`, rising.
        stepped: Which tasks have lines, `[m]`; the others have a curve.
    """

    slope: Tensor
    offset: Tensor
    logits: Tensor
    probabilities: Tensor
    stepped: Tensor

    def __call__(self, logits: Tensor) -> Tensor:
        """Probabilities, float64 `[n, m]`."""
        return torch.where(self.stepped, self._lines(logits.double()), self.log_odds(logits).sigmoid())

    def log_odds(self, logits: Tensor) -> Tensor:
        """Log-odds by Platt's curve, also of tasks with lines: on a scale that several runs share."""
        return self.slope * logits.double() + self.offset

    def _lines(self, logits: Tensor) -> Tensor:
        place = torch.searchsorted(self.logits, logits.T.contiguous(), right=True)  # [m, n]
        last = self.logits.shape[1] - 1
        left, right = (place - 1).clamp(0, last), place.clamp(0, last)
        low, high = self.logits.gather(1, left), self.logits.gather(1, right)
        share = ((logits.T - low) / (high - low).clamp(min=1e-300)).clamp(0, 1)
        start, end = self.probabilities.gather(1, left), self.probabilities.gather(1, right)
        return (start + share * (end - start)).T


def fit_calibration(logits: Tensor, labels: Tensor) -> Calibration:
    """Fit to rows that the weights were not trained on.

    Each task gets Platt's curve, or the isotonic regression of its labels, whichever has the lower log loss
    on rows that it was not fit to, by cross-validation in five parts. Isotonic regression needs twenty
    positives and negatives. A task without one of the classes has a constant probability, and log-odds that
    rank rows all the same: logits of mean zero and deviation one, plus a constant.

    Args:
        logits: `[n, m]`.
        labels: `[n, m]`: 1, 0, or -1 for missing.
    """
    logits, labels = logits.double().cpu(), labels.cpu()
    if not len(labels):  # a row without labels has the same effect
        logits, labels = logits.new_zeros(1, logits.shape[1]), labels.new_full((1, labels.shape[1]), MISSING)
    number = torch.stack([(labels == value).sum(0) for value in (0, 1)])
    slope, offset = _platt(logits, labels)
    knots, steps = _isotonic(logits, labels, (number >= _FEWEST).all(0))
    stepped = _held_out_gain(logits, labels, (number >= _FEWEST).all(0)) > 0
    constant = (number == 0).any(0)
    steps = torch.where(constant.unsqueeze(1), _base_odds(labels).sigmoid().unsqueeze(1), steps)
    return Calibration(slope, offset, knots, steps, stepped | constant)


def _platt(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    (slope,), offset = fit_log_odds(logits.unsqueeze(1), labels, torch.ones(len(labels)))
    both = torch.stack([(labels == value).any(0) for value in (0, 1)]).all(0)
    spread, mean = torch.std_mean(logits, dim=0, correction=0)
    slope = torch.where(both, slope, 1 / torch.where(spread > 0, spread, 1.0))
    return slope, torch.where(both, offset, _base_odds(labels) - slope * mean)


def _base_odds(labels: Tensor) -> Tensor:
    """Log-odds of the share of positives, `[m]`."""
    return (((labels == 1).sum(0) + 0.5) / ((labels == 0).sum(0) + 0.5)).log()


def _held_out_gain(logits: Tensor, labels: Tensor, tried: Tensor) -> Tensor:
    """How much lower the log loss of steps is than that of curves, on rows they were not fit to, `[m]`."""
    gain = torch.zeros(labels.shape[1], dtype=torch.float64)
    if not bool(tried.any()):
        return gain
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    for fold in order.tensor_split(_FOLDS):
        rest = torch.ones(len(labels), dtype=torch.bool).index_fill(0, fold, False)
        slope, offset = _platt(logits[rest], labels[rest])
        found = Calibration(slope, offset, *_isotonic(logits[rest], labels[rest], tried), tried)
        curve, steps = found.log_odds(logits[fold]).sigmoid(), found(logits[fold])
        there, positive = labels[fold] >= 0, labels[fold] == 1
        ratio = torch.where(positive, steps / curve, (1 - steps) / (1 - curve).clamp(min=1e-300))
        gain += torch.where(there, ratio.clamp(min=1e-300).log(), 0.0).sum(0)
    return torch.where(tried, gain, 0.0)


def _isotonic(logits: Tensor, labels: Tensor, tried: Tensor) -> tuple[Tensor, Tensor]:
    """Knots of isotonic regression, `[m, K]`; its loops are scikit-learn's, a task at a time."""
    regression = require("sklearn.isotonic", extra="training").isotonic_regression
    knots: list[tuple[Tensor, Tensor]] = []
    for task, wanted in enumerate(tried.tolist()):
        there = labels[:, task] >= 0
        found = (torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
        if wanted and bool(there.any()):
            x, order = logits[there, task].sort()
            y = labels[there, task][order].double()
            ends = torch.cat([x[1:] != x[:-1], torch.ones(1, dtype=torch.bool)])  # of tied logits
            group = torch.cat([torch.zeros(1, dtype=torch.long), ends.long().cumsum(0)[:-1]])
            mass = torch.bincount(group).double()
            means = torch.bincount(group, y) / mass
            fit = torch.from_numpy(regression(means.numpy(), sample_weight=mass.numpy()))
            least = 1 / (len(x) + 2)  # nothing is certain
            fit, x = fit.clamp(least, 1 - least), x[ends]
            kept = torch.ones(len(fit), dtype=torch.bool)
            kept[1:-1] = (fit[1:-1] != fit[:-2]) | (fit[1:-1] != fit[2:])  # where a step starts or ends
            some = torch.linspace(0, int(kept.sum()) - 1, min(_KNOTS, int(kept.sum()))).round().long()
            found = (x[kept][some], fit[kept][some])
        knots.append(found)
    width = max(len(x) for x, _ in knots)

    def padded(values: Tensor) -> Tensor:
        return torch.cat([values, values[-1:].expand(width - len(values))])

    return torch.stack([padded(x) for x, _ in knots]), torch.stack([padded(y) for _, y in knots])
