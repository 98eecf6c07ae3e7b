"""Deterministic splits of rows into train, valid and test, with a passed generator."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mmb.data.dataset import SPLITS


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

    Row r, at random place k of the n_s rows of its stratum, goes where (k + 1/2) / n_s falls among the
    cumulative fractions. Row indices of each part are sorted.
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
    """Split rows so that no group (`int64 [n]`) is divided: the largest groups train, rare ones test.

    The rule of DeepChem's and the Open Graph Benchmark's scaffold split: groups are taken by falling size (of
    equal ones, the one whose first row comes last); each goes to train if it still fits there, else to valid
    if it fits there, else to test. Nothing is random. Row indices of each part are sorted.
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
