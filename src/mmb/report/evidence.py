"""What some rows can show about a ranking: better than chance, no better, or too few positives to tell."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mmb.report.influence import row_influence
from mmb.report.intervals import FEWEST, Sample

_SIGMAS = 3.0  # from chance: of a thousand rankings by chance, about one is that far above
_WEAK = 0.6  # an AUC below this is of little use
_USEFUL = 0.7  # rows that cannot tell this AUC from chance are too few


@dataclass(frozen=True)
class Evidence:
    """The AUC of each task `[m]`, or its mean over tasks, on some rows, and how far noise moves it."""

    auc: Tensor  # NaN without both classes
    error: Tensor  # its standard error
    chance_error: Tensor  # the standard error of a ranking by chance on these rows
    positives: Tensor  # number of them; of negatives, if they are fewer

    @property
    def enough(self) -> Tensor:
        """Whether the rows can tell a useful AUC from chance, and are enough for an interval."""
        return (_SIGMAS * self.chance_error < _USEFUL - 0.5) & (self.positives >= FEWEST)

    @property
    def above(self) -> Tensor:
        """Whether it is better than chance."""
        return self.auc - 0.5 > _SIGMAS * self.chance_error

    @property
    def below(self) -> Tensor:
        """Whether it is worse than chance."""
        return 0.5 - self.auc > _SIGMAS * self.chance_error

    @property
    def near(self) -> Tensor:
        """Whether it is known to be of little use."""
        return self.auc + 2 * torch.maximum(self.error, self.chance_error) < _WEAK


def evidence(auc: Sample, logits: Tensor, labels: Tensor) -> tuple[Evidence, Evidence]:
    """The evidence of the mean over tasks, and that of each task, from logits and labels `[n, m]`.

    `auc` is what `area_samples` gives for them.
    """
    chance = _chance_influence(logits, labels)
    fewer = torch.minimum((labels == 1).sum(0), (labels == 0).sum(0))

    def found(value: Tensor, own: Tensor, chance: Tensor, count: Tensor) -> Evidence:
        # a perfect ranking shows no spread: its noise is half a misplaced positive
        error = own.square().sum(0).sqrt().clamp(min=0.5 / count.clamp(min=1))
        return Evidence(value, error, chance.square().sum(0).sqrt(), count)

    (values,), own = auc.values, auc.influence
    mean = found(values.nanmean(), own.nanmean(1), chance.nanmean(1), fewer.sum())
    return mean, found(values, own, chance, fewer)


def _chance_influence(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Influence of each row `[n, m]` on the AUC of a ranking by chance; NaN for tasks that lack a class.

    It is that of the same scores with their rows shuffled, which keeps the correlation of tasks. Each task is
    scaled to the exact variance, $(n_+ + n_- + 1) / (12 n_+ n_-)$.
    """
    order = torch.randperm(len(logits), generator=torch.Generator().manual_seed(0))
    (shuffled,) = row_influence(logits[order], labels, [1.0])
    positives, negatives = ((labels == sign).sum(0).double() for sign in (1, 0))
    variance = (positives + negatives + 1) / (12 * positives * negatives)
    spread = shuffled.square().sum(0)
    equal = torch.zeros_like(shuffled)
    equal[:1] = 1.0  # if all scores are equal, a single row carries the variance
    return torch.where(spread == 0, equal, shuffled / spread.sqrt()) * variance.sqrt()
