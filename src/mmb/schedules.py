"""Numbers that users pass in, and step sizes that may change along a run."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral
from typing import Any, TypeAlias

Schedule: TypeAlias = float | Callable[[int], float]
"""A number, or a function of the step, which is 0 at the first."""


def as_number(value: Any) -> float:
    """The number that was passed, or NaN, which is in no range, for None, text and whatever else is none."""
    if isinstance(value, str | bool):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return math.nan


def check_whole(name: str, value: Any, least: int) -> None:
    """Raise ValueError for what is no whole number of at least `least`; the message begins with `name`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name}: expected a whole number of at least {least}, got {value!r}")


def value_at(schedule: Schedule | None, step: int, name: str, most: float = math.inf) -> float:
    """The schedule's value at a step; 0 for None.

    Raises:
        ValueError: If that is no finite number from 0 to `most`; the message begins with `name`.
    """
    if schedule is None:
        return 0.0
    given = schedule(step) if callable(schedule) else schedule
    value = as_number(given)
    if not 0 <= value <= most or math.isinf(value):
        expected = "a finite number of at least 0" if math.isinf(most) else f"a number from 0 to {most:g}"
        raise ValueError(f"{name}: expected {expected} at every step, got {given!r} at step {step}")
    return value
