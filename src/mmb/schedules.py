"""Step sizes that may change along a run."""

import math
from collections.abc import Callable
from typing import TypeAlias

from mmb._numbers import as_number

Schedule: TypeAlias = float | Callable[[int], float]
"""A number, or a function of the step, which is 0 at the first."""


def value_at(schedule: Schedule | None, step: int, name: str, most: float = math.inf) -> float:
    """The schedule's value at a step; 0 for None.

    Raises:
        ValueError: If that is not a finite number from 0 to `most`; the message begins with `name`.
    """
    if schedule is None:
        return 0.0
    given = schedule(step) if callable(schedule) else schedule
    value = as_number(given)
    if not 0 <= value <= most or math.isinf(value):
        expected = "a finite number of at least 0" if math.isinf(most) else f"a number from 0 to {most:g}"
        raise ValueError(f"{name}: expected {expected} at every step, got {given!r} at step {step}")
    return value


def half_cosine(share: float) -> float:
    """Half a cosine: from 1 at 0 down to 0 at 1."""
    return 0.5 * (1 + math.cos(math.pi * share))
