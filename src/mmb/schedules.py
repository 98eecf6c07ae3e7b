"""Step sizes that may change along a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Schedule: TypeAlias = float | Callable[[int], float]
"""A number, or a function of the step, which is 0 at the first."""


def value_at(schedule: Schedule | None, step: int) -> float:
    """The schedule's value at a step; 0 for None."""
    if schedule is None:
        return 0.0
    return float(schedule(step) if callable(schedule) else schedule)
