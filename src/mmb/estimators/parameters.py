"""Ranges of the parameters of the estimator."""

import math
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from mmb.estimators.network import OBJECTIVES


def check_parameters(estimator: Any) -> None:
    """Raise a ValueError if a parameter is out of its range; scikit-learn wants this in `fit`, not before."""

    def is_count(value: Any) -> bool:
        return isinstance(value, Integral) and int(value) >= 1

    choices = ["soup", *OBJECTIVES]
    ranges: dict[str, tuple[Any, Callable[[Any], bool], str]] = {
        "max_fpr": (Real, lambda value: 0 < value <= 1, "a number in (0, 1]"),
        "hidden": (
            Sequence | np.ndarray,
            lambda value: all(map(is_count, value)),
            "a sequence of positive widths",
        ),
        "dropout": (Real, lambda value: 0 <= value < 1, "a number in [0, 1)"),
        "lr": (Real, lambda value: 0 < value < math.inf, "a positive number"),
        "alpha": (Real, lambda value: 0 <= value < math.inf, "a number, at least 0"),
        "batch_size": (object, is_count, "a whole number, at least 1"),
        "steps": (object, is_count, "a whole number, at least 1, or None"),
        "networks": (object, is_count, "a whole number, at least 1"),
        "trees": (bool | np.bool_, lambda _: True, "True or False"),
        "threshold": (Real, lambda value: 0 < value < 1, "a number in (0, 1), or None"),
        "verbose": (Integral, lambda value: value >= 0, "a whole number, at least 0, or a bool"),
        "objective": (object, lambda value: value in choices, f"one of {', '.join(choices)}"),
    }
    for name, (kind, good, expected) in ranges.items():
        value = getattr(estimator, name)
        is_absent = value is None and name in ("steps", "threshold")
        if not is_absent and not (isinstance(value, kind) and good(value)):
            raise ValueError(f"{name}: expected {expected}, got {value!r}")
