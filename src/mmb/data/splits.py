"""Deterministic splits of rows into train, valid and test, with a passed generator."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mmb._permutations import permutation
from mmb.data.dataset import SPLITS
from mmb.label_values import rarest_positive

_GOLDEN = (5**0.5 - 1) / 2  # its multiples are spread evenly over [0, 1), modulo one


def check_fractions(fractions: Sequence[float]) -> tuple[float, float, float]:
    """Fractions of train, valid and test, checked."""
    if len(fractions) != 3 or min(fractions) < 0 or fractions[0] <= 0 or abs(sum(fractions) - 1) > 1e-6:
        raise ValueError(
            "fractions must be three numbers >= 0 (train, valid, test) that add up to 1, the first > 0, "
            f"got {list(fractions)}"
        )
    train, valid, test = fractions
    return train, valid, test


def stratified_split(
    strata: Tensor, fractions: Sequence[float], generator: torch.Generator
) -> dict[str, Tensor]:
    """Split rows so that every stratum (`int64 [n]`) is divided by the same fractions.

    Row indices of each part are sorted.
    """
    order = torch.randperm(len(strata), generator=generator)
    return _by_part(_divide(torch.ones_like(strata), strata, order, check_fractions(fractions)))


def random_split(rows: int, fractions: Sequence[float], generator: torch.Generator) -> dict[str, Tensor]:
    """Split rows at random by fractions of train, valid and test; sorted row indices of each part.

    As `stratified_split` with a single stratum, in less memory.
    """
    order = permutation(rows, generator)
    bounds = torch.tensor(check_fractions(fractions), dtype=torch.float64).cumsum(0)[:-1].tolist()
    first, second = (_rows_before(bound, rows) for bound in bounds)
    part = torch.zeros(rows, dtype=torch.uint8)
    part[order[first:second].long()] = 1
    part[order[second:].long()] = 2
    del order
    return _by_part(part)


def _rows_before(bound: float, rows: int) -> int:
    """How many rows have their middle, as a share of all, at or before a bound."""
    start = max(0, min(rows, int(bound * rows)) - 2)  # rounding moves it by one row at most
    middle = torch.arange(start, min(rows, start + 5), dtype=torch.float64).add_(0.5).div_(rows)
    return start + int((middle <= bound).sum())


def split_rows(
    rows: int,
    fractions: Sequence[float],
    seed: int,
    *,
    labels: Tensor | None = None,
    groups: Tensor | None = None,
    times: Tensor | None = None,
    folds: int = 0,
    fold: int = 0,
) -> dict[str, Tensor]:
    """Split rows into train, valid and test; sorted row indices of each part.

    Args:
        rows: Number of rows.
        fractions: Of train, valid and test; not used with folds.
        seed: Of all that is random.
        labels: `int8 [n, m]`. If given, positives of every task are divided evenly, the rarest task first,
            and every part has some of every task that has enough of them.
        groups: `int64 [n]`. If given, rows of a group are in the same part.
        times: `float64 [n]`. If given, the earliest rows train and the latest test. Nothing is random, and
            rows of the same time stay together; a group counts as its latest row.
        folds: If not 0, rows are divided into this many equal folds.
        fold: Which fold tests; the next one is for validation, and all others train.

    Raises:
        ValueError: If these do not go together.
    """
    if times is not None and (folds or labels is not None):
        raise ValueError("time: rows in order of time can be neither stratified nor divided into folds")
    if folds and not (3 <= folds <= rows and 0 <= fold < folds):
        raise ValueError(
            f"folds, fold: expected 3 <= folds <= {rows} and 0 <= fold < folds, got {folds}, {fold}"
        )
    if not folds and all(given is None for given in (labels, groups, times)):
        return random_split(rows, fractions, torch.Generator().manual_seed(seed))
    shares = [1 / folds] * folds if folds else check_fractions(fractions)
    if groups is None and times is not None:
        groups = times
    units = torch.arange(rows) if groups is None else torch.unique(groups, return_inverse=True)[1]
    sizes = torch.bincount(units)
    order = torch.randperm(len(sizes), generator=torch.Generator().manual_seed(seed))
    if times is not None:
        order = _of_each(units, times, "amax").argsort(stable=True)
    strata, positive = torch.zeros_like(sizes), torch.ones(len(sizes), 1, dtype=torch.bool)
    if labels is not None:
        found = torch.zeros(len(sizes), labels.shape[1], dtype=torch.int32)
        found = found.index_add_(0, units, (labels == 1).int()).clamp_(max=1)
        strata, positive = rarest_positive(found), torch.cat([positive, found == 1], 1)
    part = _divide(sizes, strata, order, shares)
    if times is not None:
        _fill_in_order(part, order, [number for number, share in enumerate(shares) if share > 0])
    elif groups is not None or labels is not None:
        _fill_gaps(part, positive, sizes, [number for number, share in enumerate(shares) if share > 0])
    if folds:
        part = torch.where(part == fold, 2, torch.where(part == (fold + 1) % folds, 1, 0))
    return _by_part(part[units])


def _divide(sizes: Tensor, strata: Tensor, order: Tensor, shares: Sequence[float]) -> Tensor:
    """The part `[k]` of each of `k` units of some sizes, so that every stratum is divided by the same shares.

    Units are taken in an order. One goes where its middle falls among the cumulative shares of its stratum.
    Strata of few units start at other places of these shares each, or together they would fill one part.
    """
    order = order[torch.argsort(strata[order], stable=True)]  # by stratum
    sizes, (_, counts) = sizes[order], torch.unique_consecutive(strata[order], return_counts=True)
    ends, last = sizes.cumsum(0), counts.cumsum(0) - 1
    before = torch.cat([ends.new_zeros(1), ends[last]])
    start, total = (torch.repeat_interleave(each, counts) for each in (before[:-1], before.diff()))
    middle = (ends - start - sizes / 2) / total
    small = counts * min(share for share in shares if share > 0) < 1
    begin = torch.where(small, torch.arange(len(counts)) * _GOLDEN, 0.0)
    middle = (middle + torch.repeat_interleave(begin, counts)) % 1
    part = torch.empty_like(order)
    part[order] = torch.bucketize(middle, torch.tensor(shares, dtype=torch.float64).cumsum(0)[:-1])
    return part


def _fill_gaps(part: Tensor, positive: Tensor, sizes: Tensor, parts: list[int]) -> None:
    """Move units, in place, to parts that have none, or none that is positive for a task, where possible.

    A unit is moved if the part that it leaves keeps another one for all of its tasks; of those the smallest.
    """
    counts = torch.zeros(max(parts) + 1, positive.shape[1], dtype=torch.int64)
    counts.index_add_(0, part, positive.long())
    lacking = (counts[parts] == 0) & (positive.sum(0) > 0)
    for task in positive.sum(0).argsort(stable=True).tolist():  # of which few are lacking anywhere
        for to in (parts[place] for place in lacking[:, task].nonzero().flatten().tolist()):
            if counts[to, task] > 0:
                continue
            units = positive[:, task].nonzero().flatten()
            spare = (counts[part[units]] > 1) | ~positive[units]
            whole = spare.all(1)
            if task == 0 and not bool(whole.any()):  # better a task less than a part without rows
                whole = spare[:, 0]
            if bool(whole.any()):
                units = units[whole]
                unit = units[sizes[units].argmin()]
                counts[part[unit]] -= positive[unit].long()
                counts[to] += positive[unit].long()
                part[unit] = to


def _fill_in_order(part: Tensor, order: Tensor, parts: list[int]) -> None:
    """Shift the ends of parts, in place, so that none of them is empty where there are enough units.

    Units are in parts by their order, and stay so.
    """
    spare, start = len(order) - len(parts), 0
    for place, number in enumerate(parts if spare >= 0 else ()):
        stop = int((part <= number).sum())
        stop = len(order) if place == len(parts) - 1 else min(max(stop, start + 1), spare + place + 1)
        part[order[start:stop]] = number
        start = stop


def united(groups: Tensor | None, others: Tensor | None) -> Tensor | None:
    """Codes `[n]` of rows that either of two codes puts together, also by way of other rows."""
    if groups is None or others is None:
        return others if groups is None else groups
    found, before = groups, None
    while before is None or not torch.equal(found, before):
        before = found
        for codes in (others, groups):  # the smallest code wanders
            found = _of_each(codes, found, "amin")[codes]
    return found


def _of_each(groups: Tensor, values: Tensor, what: str) -> Tensor:
    """The smallest (`amin`) or largest (`amax`) of the values `[n]` of each group."""
    found = values.new_zeros(int(groups.max()) + 1)
    return found.scatter_reduce(0, groups, values, what, include_self=False)


def _by_part(part: Tensor) -> dict[str, Tensor]:
    return {name: torch.nonzero(part == index).squeeze(1) for index, name in enumerate(SPLITS)}


def grouped_split(groups: Tensor, fractions: Sequence[float]) -> dict[str, Tensor]:
    """Split rows so that no group (`int64 [n]`) is divided: the largest groups train, rare ones test.

    The rule of DeepChem's and the Open Graph Benchmark's scaffold split: groups are taken by falling size (of
    equal ones, the one whose first row comes last); each goes to train if it still fits there, else to valid
    if it fits there, else to test. The largest trains also if it is too large. Nothing is random. Row indices
    of each part are sorted.
    """
    train_size, valid_size, _ = (fraction * len(groups) for fraction in check_fractions(fractions))
    rows_of: dict[int, list[int]] = {}
    for row, group in enumerate(groups.tolist()):
        rows_of.setdefault(group, []).append(row)
    parts: dict[str, list[int]] = {name: [] for name in SPLITS}
    for rows in sorted(rows_of.values(), key=lambda rows: (len(rows), rows[0]), reverse=True):
        if not parts["train"] or len(parts["train"]) + len(rows) <= train_size:
            parts["train"] += rows
        elif len(parts["train"]) + len(parts["valid"]) + len(rows) <= train_size + valid_size:
            parts["valid"] += rows
        else:
            parts["test"] += rows
    return {name: torch.tensor(sorted(rows), dtype=torch.int64) for name, rows in parts.items()}
