"""Deterministic splits of rows into train, valid and test, with a passed generator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mmb.data.dataset import SPLITS


def check_fractions(fractions: Sequence[float]) -> tuple[float, float, float]:
    """Fractions of train, valid and test as a tuple.

    Raises:
        ValueError: If they are not three numbers >= 0 that add up to one, with some training rows.
    """
    if len(fractions) != 3 or min(fractions) < 0 or fractions[0] <= 0 or abs(sum(fractions) - 1) > 1e-6:
        raise ValueError(
            f"fractions must be three numbers (train, valid, test) that are >= 0, start with one > 0 and add "
            f"up to 1, got {list(fractions)}"
        )
    train, valid, test = fractions
    return train, valid, test


def stratified_split(
    strata: Tensor, fractions: Sequence[float], generator: torch.Generator
) -> dict[str, Tensor]:
    """Split rows so that every stratum is divided by the same fractions.

    Row r, at random place k of the n_s rows of its stratum, goes where (k + 1/2) / n_s falls among the
    cumulated fractions.

    Args:
        strata: `int64 [n]`, the stratum of each row.
        fractions: Of train, valid and test; they add up to one.
        generator: Shuffles the rows.

    Returns:
        Sorted row indices of each part.
    """
    cuts = torch.tensor(check_fractions(fractions), dtype=torch.float64).cumsum(0)[:2]
    n = len(strata)
    shuffled = torch.randperm(n, generator=generator)
    order = shuffled[torch.argsort(strata[shuffled], stable=True)]  # by stratum, at random within
    _, counts = torch.unique_consecutive(strata[order], return_counts=True)
    starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    place = (torch.arange(n) - starts + 0.5) / torch.repeat_interleave(counts, counts)
    part = torch.empty(n, dtype=torch.int64)
    part[order] = torch.bucketize(place, cuts)
    return {name: torch.nonzero(part == index).squeeze(1) for index, name in enumerate(SPLITS)}


def random_split(rows: int, fractions: Sequence[float], generator: torch.Generator) -> dict[str, Tensor]:
    """Split rows at random by fractions of train, valid and test; sorted row indices of each part."""
    return stratified_split(torch.zeros(rows, dtype=torch.int64), fractions, generator)


def grouped_split(groups: Tensor, fractions: Sequence[float]) -> dict[str, Tensor]:
    """Split rows so that a group is never divided: the largest groups train, rare ones test.

    The rule of DeepChem's and the Open Graph Benchmark's scaffold split: groups are taken by falling size (of
    equal ones, the one whose first row comes last); each goes to train if it still fits there, else to valid
    if it fits there, else to test. Nothing is random.

    Args:
        groups: `int64 [n]`, the group of each row.
        fractions: Of train, valid and test; they add up to one.

    Returns:
        Sorted row indices of each part.
    """
    train_size, valid_size, _ = (fraction * len(groups) for fraction in check_fractions(fractions))
    rows_of: dict[int, list[int]] = {}
    for row, group in enumerate(groups.tolist()):
        rows_of.setdefault(group, []).append(row)
    parts: dict[str, list[int]] = {name: [] for name in SPLITS}
    for rows in sorted(rows_of.values(), key=lambda rows: (len(rows), rows[0]), reverse=True):
        if len(parts["train"]) + len(rows) <= train_size:
            parts["train"] += rows
        elif len(parts["train"]) + len(parts["valid"]) + len(rows) <= train_size + valid_size:
            parts["valid"] += rows
        else:
            parts["test"] += rows
    return {name: torch.tensor(sorted(rows), dtype=torch.int64) for name, rows in parts.items()}
