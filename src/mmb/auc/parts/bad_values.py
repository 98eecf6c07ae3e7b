"""Scores and weights that would spoil block state: the batch is refused, or they are skipped and counted."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from mmb.label_values import MISSING

BadValues = Literal["refuse", "skip"]


class BadValueError(ValueError):
    """A score or a weight of a labeled entry is not finite, too large to compute with, or negative."""


class Screened(NamedTuple):
    """What is left of a batch: `[rows, tasks]` or, task-sampled, `[tasks, rows]`."""

    scores: Tensor  # finite everywhere
    signs: Tensor  # labels as 1, 0 and MISSING
    weights: Tensor | None
    broken: Tensor | None  # bool scalar, whether the batch is refused; None: the host knows that it is not
    skipped: Tensor  # number of entries that are left out


def score_limit(dtype: torch.dtype) -> float:
    """The largest score to compute with: its square, weighed and summed, is far from overflow."""
    return float(max(torch.finfo(dtype).max ** 0.2, 1e3))


def weight_limit(dtype: torch.dtype) -> float:
    """The largest weight to compute with."""
    return float(torch.finfo(dtype).max ** 0.25)


def screen(
    scores: Tensor,
    signs: Tensor,
    weights: Tensor | None,
    tasks: Tensor | None,
    choice: BadValues,
    can_raise: bool = True,
) -> Screened:
    """Look for bad values at labeled entries, before anything is computed with them; others never matter.

    On the CPU, a refused batch raises `BadValueError`. On a GPU that would make every step wait, and of
    several processes only one: there all labels of a refused batch become missing, so that it has no gradient
    and moves no state, and its loss is NaN, which is seen when it is logged.
    """
    none = signs.new_zeros(())
    look = scores.device.type == "cpu" and not torch.compiler.is_compiling()
    largest, heaviest = score_limit(scores.dtype), weight_limit(scores.dtype)
    if look and _within(scores, -largest, largest) and (weights is None or _within(weights, 0.0, heaviest)):
        return Screened(scores, signs, weights, None, none)
    bad_scores = ~(scores.detach().abs() <= largest)
    bad = bad_scores
    if weights is not None:
        bad_weights = ~((weights >= 0) & (weights <= heaviest))
        weights = torch.where(bad_weights, 0.0, weights)
        bad = bad | bad_weights
    bad = bad & (signs != MISSING)
    broken: Tensor | None = None
    if choice == "refuse" and look and can_raise:
        if bool(bad.any()):
            raise _error(scores, bad_scores, bad, tasks)
    elif choice == "refuse":
        broken = bad.any()
        bad = broken.expand(bad.shape)
    signs = torch.where(bad, float(MISSING), signs)
    skipped = bad.sum().to(none.dtype) if choice == "skip" else none
    return Screened(torch.where(bad_scores, 0.0, scores), signs, weights, broken, skipped)


def usable_or(scores: Tensor, others: Tensor) -> Tensor:
    """Scores, and the others where these cannot be computed with."""
    largest = score_limit(scores.dtype)
    if scores.device.type == "cpu" and _within(scores, -largest, largest):
        return scores
    return torch.where(scores.abs() <= largest, scores, others)


def _within(values: Tensor, low: float, high: float) -> bool:
    """Whether all values are numbers of an interval; NaN is the extreme of whatever it is among."""
    least, most = values.detach().aminmax()
    return low <= float(least) and float(most) <= high


def _error(scores: Tensor, bad_scores: Tensor, bad: Tensor, tasks: Tensor | None) -> BadValueError:
    """The error that names the first bad entry."""
    place = tuple(bad.nonzero()[0].tolist())
    row, task = place if tasks is None else (place[1], int(tasks[place[0]]))
    where = f"task {task}, row {row} of the batch (bad entries in all: {int(bad.sum())})"
    if bool(bad_scores[place]):
        return BadValueError(
            f"scores: expected finite logits of at most {score_limit(scores.dtype):.2g}, got "
            f"{float(scores.detach()[place]):g} for {where}; inputs may have NaN, or the step size is too "
            "large. The batch is refused, and nothing has changed"
        )
    return BadValueError(
        f"weights: expected finite numbers of at least 0 and at most {weight_limit(scores.dtype):.2g}, "
        f"got another for {where}. The batch is refused, and nothing has changed"
    )
