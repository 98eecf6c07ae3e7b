"""What the parameters of the estimator may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from mmb.estimators.network import OBJECTIVES


def check_parameters(its: Any) -> None:
    """Check the parameters of an estimator, as scikit-learn wants it when it is fitted and not before.

    Raises:
        ValueError: If one is out of its range; the message says which, and what is possible.
    """
    at_least_one = _both(Integral, lambda value: value >= 1)
    ranges: dict[str, tuple[Callable[[Any], bool], str]] = {
        "max_fpr": (_both(Real, lambda value: 0 < value <= 1), "a number in (0, 1]"),
        "hidden": (
            lambda value: isinstance(value, Sequence | np.ndarray) and all(map(at_least_one, value)),
            "a sequence of positive widths",
        ),
        "dropout": (_both(Real, lambda value: 0 <= value < 1), "a number in [0, 1)"),
        "lr": (_both(Real, lambda value: 0 < value < math.inf), "a positive number"),
        "alpha": (_both(Real, lambda value: 0 <= value < math.inf), "a number that is not negative"),
        "batch_size": (at_least_one, "a whole number, at least 1"),
        "steps": (lambda value: value is None or at_least_one(value), "a whole number, at least 1, or None"),
        "networks": (at_least_one, "a whole number, at least 1"),
        "threshold": (
            lambda value: value is None or _both(Real, lambda cut: 0 < cut < 1)(value),
            "a number in (0, 1), or None",
        ),
        "objective": (lambda value: value in list(OBJECTIVES), f"one of {', '.join(OBJECTIVES)}"),
    }
    for name, (good, expected) in ranges.items():
        if not good(getattr(its, name)):
            raise ValueError(f"{name}: expected {expected}, got {getattr(its, name)!r}")


def _both(kind: type, within: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether a value is of a kind and within a range."""
    return lambda value: isinstance(value, kind) and within(value)
