"""Numbers that users pass in."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any


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
