"""What every metric starts from: one sort, and the counts of each positive."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mmb.metrics._checks import check_labels, check_pair, check_scores
from mmb.metrics._keys import decode, encode, sort_rows

_AT_ONCE = 2**17  # entries


@dataclass(frozen=True)
class Entries:
    """Labeled entries of each task in any order, task after task in one flat list."""

    scores: Tensor  # [e]
    positive: Tensor  # [e] whether the entry is a positive
    labeled: Tensor  # [m] how many entries each task has
    positives: Tensor  # [m] how many of them are positives
    one_task: bool  # whether the inputs were [n]

    logits: bool  # whether scores are logits of probabilities

    def probability(self, at: slice | Tensor) -> Tensor:
        """Probabilities of some entries, float64."""
        values = self.scores[at].double()
        return values.sigmoid() if self.logits else values

    def excess(self, part: slice) -> Tensor:
        """Probability minus label of a stretch of entries, float64."""
        return self.probability(part).sub(self.positive[part].double())

    def mean(self, values: Callable[[slice], Tensor]) -> Tensor:
        """Mean over each task's entries, `[m]`, of what is computed for stretches of them, float64."""
        return sums(values, self.labeled) / self.labeled

    def result(self, values: Tensor) -> Tensor:
        """`[m]` values as the caller gets them: NaN where a class is absent, a scalar for `[n]` input."""
        has_both = (self.positives > 0) & (self.positives < self.labeled)
        return _result(values, has_both, self.one_task)


@dataclass(frozen=True)
class Sorted:
    """Labeled entries of each task by falling score, task after task in one flat list."""

    keys: Tensor  # [e] integers in falling order of the scores
    positive: Tensor  # [e] whether the entry is a positive
    labeled: Tensor  # [m] how many entries each task has
    positives: Tensor  # [m] how many of them are positives
    one_task: bool  # whether the inputs were [n]
    dtype: torch.dtype  # of the scores

    def entries(self, logits: bool) -> Entries:
        """The same entries with their scores."""
        scores = decode(self.keys, self.dtype)
        return Entries(scores, self.positive, self.labeled, self.positives, self.one_task, logits)

    def ties_next(self) -> Tensor:
        """Whether an entry is tied with the next one of its task, `[e]`."""
        ties = torch.zeros_like(self.positive)
        torch.eq(self.keys[1:], self.keys[:-1], out=ties[:-1])
        ends = self.labeled.cumsum(0)[self.labeled > 0] - 1
        ties[ends] = False
        return ties


@dataclass(frozen=True)
class TaskRanks:
    """The counts of each positive, all tasks in one flat list, and the class sizes of each task."""

    task: Tensor  # [r] the positive's task
    above: Tensor  # [r] entries of its task scored strictly above it
    through: Tensor  # [r] entries at or above it, itself included
    tp_above: Tensor  # [r] positives strictly above it
    tp: Tensor  # [r] positives at or above it, itself included
    positives: Tensor  # [m] float64
    negatives: Tensor  # [m] float64
    one_task: bool

    @property
    def fp_above(self) -> Tensor:
        """Negatives scored strictly above each positive, `[r]`."""
        return self.above - self.tp_above

    @property
    def fp(self) -> Tensor:
        """Negatives at or above each positive, `[r]`."""
        return self.through - self.tp

    @property
    def labeled(self) -> Tensor:
        """Number of entries of each task, float64 `[m]`."""
        return self.positives + self.negatives

    def leading(self, holds: Callable[[Tensor], Tensor]) -> Tensor:
        """How many of each task's first positives hold, `[m]`: all do up to some positive, and none after.

        `holds` takes the places of positives in the flat list, one for each task.
        """
        return leading(holds, self.positives.long(), len(self.task))

    def counts(self, number: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """`above`, `through`, `tp_above` and `tp` of one positive of each task, `[m]`.

        `number` `[m]` counts from 0. Where a task has no such positive, its last one is taken; where it has
        none, the values mean nothing.
        """
        positives = self.positives.long()
        if not len(self.task):
            return positives, positives, positives, positives
        at = (positives.cumsum(0) - positives + number.minimum(positives - 1)).clamp(min=0)
        return self.above[at], self.through[at], self.tp_above[at], self.tp[at]

    @cached_property
    def twice_fp(self) -> Tensor:
        """Sums of `fp_above + fp` over all positives before each place in the list, `[r + 1]`, integers."""
        found = torch.zeros(len(self.task) + 1, dtype=self.task.dtype, device=self.task.device)
        each = (self.above + self.through).sub_(self.tp_above).sub_(self.tp)
        torch.cumsum(each, 0, out=found[1:])
        return found

    def first_twice_fp(self, number: Tensor) -> Tensor:
        """The exact sum of `fp_above + fp` over each task's first positives, `number` `[m]` of them."""
        positives = self.positives.long()
        begins = positives.cumsum(0) - positives
        return (self.twice_fp[begins + number] - self.twice_fp[begins]).double()

    def sum(self, values: Callable[[slice], Tensor]) -> Tensor:
        """Sum over each task's positives, `[m]`, of what is computed for stretches of them, float64."""
        return sums(values, self.positives.long())

    def result(self, values: Tensor) -> Tensor:
        """`[m]` values as the caller gets them: NaN where a class is absent, a scalar for `[n]` input."""
        return _result(values, (self.positives > 0) & (self.negatives > 0), self.one_task)


def sums(values: Callable[[slice], Tensor], lengths: Tensor) -> Tensor:
    """Sums over stretches of a flat list, whose `lengths` are `[m]` or `[m, k]`, task after task.

    `values` computes float64 numbers for some entries: on a CPU for those of a few tasks at a time, which
    stay in its cache, since most of the time would go to new memory.
    """
    if lengths.device.type != "cpu" or not len(lengths):
        return torch.segment_reduce(values(slice(None)), "sum", lengths=lengths.flatten()).view_as(lengths)
    ends = lengths.view(len(lengths), -1).sum(1).cumsum(0)
    last = ((ends - 1) // _AT_ONCE).diff(append=ends.new_full((1,), -2)).nonzero().squeeze(1)  # of each group
    found, task, entry = [], 0, 0
    for until, end in zip((last + 1).tolist(), ends[last].tolist(), strict=True):
        own = lengths[task:until].flatten()
        found.append(torch.segment_reduce(values(slice(entry, end)), "sum", lengths=own))
        task, entry = until, end
    return torch.cat(found).view_as(lengths)


def leading(holds: Callable[[Tensor], Tensor], counts: Tensor, total: int) -> Tensor:
    """How many of the first entries of each task hold, by bisection: all do up to some entry, and none after.

    `holds` takes places in a flat list of `total` entries, `counts` of each task; the tasks are the first
    dimension of all.
    """
    low, high = torch.zeros_like(counts), counts
    begins = counts.cumsum(0) - counts
    for _ in range(total.bit_length()):
        middle = (low + high) // 2
        yes = (low < high) & holds((begins + middle).clamp(max=total - 1))
        low, high = torch.where(yes, middle + 1, low), torch.where(yes, high, middle)
    return low


def _result(values: Tensor, has_both: Tensor, one_task: bool) -> Tensor:
    values = values.masked_fill(~has_both, torch.nan)
    return values.squeeze(0) if one_task else values


def _checked(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor | None, bool]:
    """Scores `[n, m]`, where positive, where labeled (None: everywhere), and whether they were `[n]`."""
    check_pair(scores, labels)
    one_task = scores.dim() == 1
    scores, labels = scores.detach(), labels.detach()
    if one_task:
        scores, labels = scores[:, None], labels[:, None]
    positive, labeled = check_labels(labels)
    check_scores(scores, labeled)
    return scores, positive, labeled, one_task


def _count(marks: Tensor) -> Tensor:
    """How many are true in each row, `[m, n]` to `[m]`: booleans sum much faster in 32 bits."""
    return marks.sum(1, dtype=torch.int32).long()


def flatten(scores: Tensor, labels: Tensor, logits: bool) -> Entries:
    """Check both arguments and list each task's labeled entries, in the order of the rows."""
    scores, positive, labeled, one_task = _checked(scores, labels)
    if labeled is None:
        counts = torch.full(scores.shape[1:], scores.shape[0], device=scores.device)
        return Entries(scores.T.flatten(), positive.T.flatten(), counts, _count(positive.T), one_task, logits)
    counts = _count(labeled.T)
    return Entries(scores.T[labeled.T], positive.T[labeled.T], counts, _count(positive.T), one_task, logits)


def sort(scores: Tensor, labels: Tensor) -> Sorted:
    """Check both arguments and sort each task's labeled entries."""
    scores, positive, labeled, one_task = _checked(scores, labels)
    keys, positive = encode(scores.T), positive.T.contiguous()  # [m, n]: sorts are fastest along rows
    if labeled is None:
        counts = torch.full(keys.shape[:1], keys.shape[1], device=keys.device)
    else:
        labeled = labeled.T.contiguous()
        counts = _count(labeled)
        # Missing entries go last: they get the greatest integer, bit by bit, which is faster than by a mask.
        gap = labeled.to(keys.dtype).sub_(1)  # all bits for a missing entry, none for another
        keys.bitwise_or_(gap).bitwise_xor_(gap.bitwise_and_(torch.iinfo(keys.dtype).min))
    positives = _count(positive)
    return Sorted(*sort_rows(keys, positive, counts), counts, positives, one_task, scores.dtype)


def rank(entries: Sorted) -> TaskRanks:
    """Count, for each positive, the entries of each class above it and at or above it."""
    at = entries.positive.nonzero().squeeze(1)
    positives = entries.positives
    task = torch.repeat_interleave(positives, output_size=len(at))
    above = (entries.labeled - entries.labeled.cumsum(0))[task].add_(at)  # without those of earlier tasks
    tp_above = (positives - positives.cumsum(0))[task].add_(torch.arange(len(at), device=at.device))
    through, tp = above + 1, tp_above + 1

    # Positives in a run of equal scores count from its first and through its last entry.
    ties_next = entries.ties_next()
    flips = ties_next.clone()
    flips[1:] ^= ties_next[:-1]
    first, last = flips.nonzero().view(-1, 2).T.contiguous()  # of each run
    before, until = torch.searchsorted(at, first), torch.searchsorted(at, last, right=True)
    run = torch.repeat_interleave(until - before)
    tied = torch.arange(len(run), device=at.device) + (until - (until - before).cumsum(0))[run]
    above[tied] += first[run] - at[tied]
    through[tied] += last[run] - at[tied]
    tp_above[tied] += before[run] - tied
    tp[tied] += until[run] - 1 - tied
    return TaskRanks(
        task=task,
        above=above,
        through=through,
        tp_above=tp_above,
        tp=tp,
        positives=positives.double(),
        negatives=(entries.labeled - positives).double(),
        one_task=entries.one_task,
    )
