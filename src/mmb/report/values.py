"""Numbers as the page gets them: rounded, and None where there is none."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor


def numbers(values: Tensor, digits: int = 5) -> Any:
    """A tensor as nested lists, or a number, of so many decimal places; None for NaN and infinity."""
    return _rounded(values.tolist(), digits)


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, list):
        return [_rounded(item, digits) for item in value]
    if isinstance(value, float):
        return round(value, digits) if math.isfinite(value) else None
    return value
