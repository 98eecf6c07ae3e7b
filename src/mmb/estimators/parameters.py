"""The ranges of the estimator's parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from mmb.estimators.network import OBJECTIVES


def check_parameters(estimator: Any) -> None:
    """Raise a ValueError if a parameter is out of its range; scikit-learn wants this in `fit`, not before."""
    is_count = _is(Integral, lambda value: value >= 1)
    ranges: dict[str, tuple[Callable[[Any], bool], str]] = {
        "max_fpr": (_is(Real, lambda value: 0 < value <= 1), "a number in (0, 1]"),
        "hidden": (
            lambda value: isinstance(value, Sequence | np.ndarray) and all(map(is_count, value)),
            "a sequence of positive widths",
        ),
        "dropout": (_is(Real, lambda value: 0 <= value < 1), "a number in [0, 1)"),
        "lr": (_is(Real, lambda value: 0 < value < math.inf), "a positive number"),
        "alpha": (_is(Real, lambda value: 0 <= value < math.inf), "a number, at least 0"),
        "batch_size": (is_count, "a whole number, at least 1"),
        "steps": (lambda value: value is None or is_count(value), "a whole number, at least 1, or None"),
        "networks": (is_count, "a whole number, at least 1"),
        "threshold": (
            lambda value: value is None or _is(Real, lambda cut: 0 < cut < 1)(value),
            "a number in (0, 1), or None",
        ),
        "objective": (lambda value: value in list(OBJECTIVES), f"one of {', '.join(OBJECTIVES)}"),
    }
    for name, (good, expected) in ranges.items():
        if not good(getattr(estimator, name)):
            raise ValueError(f"{name}: expected {expected}, got {getattr(estimator, name)!r}")


def _is(kind: type, within: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A check that a value is of a type and within a range."""
    return lambda value: isinstance(value, kind) and within(value)
