"""What every metric starts from: checked inputs, one sort, and the counts of each positive."""

from dataclasses import dataclass

import torch
from torch import Tensor

_INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class Sorted:
    """Entries of each task by falling score, missing ones last."""

    keys: Tensor  # [m, n] integers in the order of the scores
    positive: Tensor  # [m, n] whether the entry is a positive
    labelled: Tensor  # [m] how many entries are not missing
    one_task: bool  # whether the inputs were [n]


@dataclass(frozen=True)
class Ranks:
    """The four counts of each positive, all tasks in one flat list, and the class sizes of each task."""

    task: Tensor  # [r] the positive's task
    fp_above: Tensor  # [r] negatives of its task scored strictly above it
    fp: Tensor  # [r] negatives at or above it
    tp_above: Tensor  # [r] positives strictly above it
    tp: Tensor  # [r] positives at or above it, itself included
    positives: Tensor  # [m] float64
    negatives: Tensor  # [m] float64
    one_task: bool

    def mean(self, values: Tensor) -> Tensor:
        """Mean over each task's positives of one float64 value per positive: `[r]` to `[m]`."""
        return torch.zeros_like(self.positives).index_add_(0, self.task, values) / self.positives

    def result(self, values: Tensor) -> Tensor:
        """`[m]` values as the caller gets them: NaN where a class is absent, a scalar for `[n]` input."""
        values = values.masked_fill((self.positives == 0) | (self.negatives == 0), torch.nan)
        return values.squeeze(0) if self.one_task else values


def sort(scores: Tensor, labels: Tensor) -> Sorted:
    """Check both arguments and sort each task's entries."""
    _check_pair(scores, labels)
    one_task = scores.dim() == 1
    scores, labels = scores.detach(), labels.detach()
    if one_task:
        scores, labels = scores[:, None], labels[:, None]
    positive, missing = _check_labels(labels)
    _check_scores(scores, missing)
    keys = _encode(scores.T)  # [m, n]: a sort is fastest along contiguous rows
    least = torch.iinfo(keys.dtype).min
    keys, order = keys.masked_fill_(missing.T, least).sort(dim=1, descending=True)
    positive = positive.T.contiguous().gather(1, order)
    return Sorted(keys, positive, labelled=_count(keys != least), one_task=one_task)


def rank(entries: Sorted) -> Ranks:
    """Count, for each positive, the entries of each class above it and at or above it."""
    n = entries.keys.shape[1]
    at = entries.positive.flatten().nonzero().squeeze(1)  # flat: task * n + number of entries before it
    # Runs of equal scores, by first and last entry; one before them all stands for "in no run".
    ties_next = torch.zeros_like(entries.positive)
    torch.eq(entries.keys[:, 1:], entries.keys[:, :-1], out=ties_next[:, :-1])
    ties_next = ties_next.flatten()
    flips = ties_next.clone()
    flips[1:] ^= ties_next[:-1]
    first, last = torch.nn.functional.pad(flips.nonzero().view(-1, 2), (0, 0, 1, 0), value=-1).unbind(1)
    run = torch.searchsorted(first.contiguous(), at, right=True) - 1
    first, last = first[run], last[run]
    tied = at <= last
    start, end = first.where(tied, at), last.where(tied, at) + 1

    task = at // n
    positives = _count(entries.positive)
    # The list is in order: positives of one tie are neighbours in it, and its first ones are the highest.
    _, tie, size = torch.unique_consecutive(start, return_inverse=True, return_counts=True)
    tp = size.cumsum(0)[tie] - (positives.cumsum(0) - positives)[task]
    tp_above = tp - size[tie]
    return Ranks(
        task=task,
        fp_above=start - task * n - tp_above,
        fp=end - task * n - tp,
        tp_above=tp_above,
        tp=tp,
        positives=positives.double(),
        negatives=(entries.labelled - positives).double(),
        one_task=entries.one_task,
    )


def _count(mask: Tensor) -> Tensor:
    # A task has fewer than 2^31 entries, and booleans sum many times faster in 32 bits than in 64.
    return mask.sum(1, dtype=torch.int32).long()


def _encode(scores: Tensor) -> Tensor:
    """A new contiguous integer tensor in the order of the scores: integers sort faster than floats.

    The bits of a nonnegative float, read as an integer, are in the order of the floats; those of a negative
    one are in reverse order, so all but the sign are flipped. The least integer is left to stand for
    "missing": in floats it is the code of a NaN, in integers `_check_scores` refuses it.
    """
    if not scores.is_floating_point():
        return scores.to(torch.int64, copy=True, memory_format=torch.contiguous_format)
    if scores.dtype != torch.float64:
        scores = scores.to(torch.float32)
    # Adding 0.0 turns -0.0, which equals 0.0 but has other bits, into 0.0.
    bits = scores.clone(memory_format=torch.contiguous_format).add_(0.0)
    return _flip_negative(bits.view(torch.int64 if bits.dtype == torch.float64 else torch.int32))


def decode(keys: Tensor, dtype: torch.dtype) -> Tensor:
    """The scores of dtype `dtype` behind the keys, in that dtype (float64 for integers)."""
    if not dtype.is_floating_point:
        return keys.double()
    bits = _flip_negative(keys.clone())
    return bits.view(torch.float64 if bits.dtype == torch.int64 else torch.float32).to(dtype)


def _flip_negative(bits: Tensor) -> Tensor:
    info = torch.iinfo(bits.dtype)
    return bits.bitwise_xor_((bits >> (info.bits - 1)).bitwise_and_(info.max))


def _check_pair(scores: Tensor, labels: Tensor) -> None:
    for name, value in (("scores", scores), ("labels", labels)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
        if value.dtype not in _INTEGERS + _FLOATS:
            raise TypeError(
                f"{name} must be of a bool, integer or 16 to 64 bit float dtype, got {value.dtype}"
            )
    if scores.shape != labels.shape or scores.dim() not in (1, 2):
        raise ValueError(
            "scores and labels must both have shape [n] or both [n, m], "
            f"got scores {list(scores.shape)} and labels {list(labels.shape)}"
        )
    if scores.device != labels.device:
        raise ValueError(
            f"scores are on {scores.device} and labels on {labels.device}: move one to the other's device"
        )


def _check_labels(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Where the `[n, m]` labels are positive, and where they are missing."""
    positive = labels == 1
    if labels.is_floating_point():
        missing, mark = labels.isnan(), "NaN"
    else:  # torch takes -1 for 255 when it compares it with an unsigned tensor
        missing, mark = (labels == -1) & labels.dtype.is_signed, "-1"
    wrong = ~(positive | missing | (labels == 0))
    if wrong.any():
        row, task = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"labels must be 0, 1 or missing ({mark} in {labels.dtype}), "
            f"got {labels[row, task].item()} at row {row}, task {task}"
        )
    if missing.all():
        raise ValueError(
            f"labels must have at least one entry that is not missing, got none in {list(labels.shape)}"
        )
    return positive, missing


def _check_scores(scores: Tensor, missing: Tensor) -> None:
    """Refuse scores without a place in the order: NaN and infinities (an overflow), the least int64."""
    if scores.is_floating_point():
        if torch.stack(scores.aminmax()).isfinite().all():
            return  # the usual case in one fast pass: both extremes are NaN if any score is
        wrong = ~(scores.isfinite() | missing)
    else:
        wrong = (scores.long() == torch.iinfo(torch.int64).min) & ~missing
    if wrong.any():
        row, task = wrong.nonzero()[0].tolist()
        raise ValueError(
            "scores must be finite wherever labels are not missing, "
            f"got {scores[row, task].item()} at row {row}, task {task}"
        )
