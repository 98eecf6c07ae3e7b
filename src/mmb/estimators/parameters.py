"""What the parameters of the estimator may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmb.estimators.network import OBJECTIVES


def check_parameters(its: Any) -> None:
    """Check the parameters of an estimator, as scikit-learn wants it when it is fitted and not before.

    Raises:
        ValueError: If one is out of its range; the message says which, and what is possible.
    """
    ranges = {
        "max_fpr": (0 < its.max_fpr <= 1, "in (0, 1]"),
        "hidden": (
            isinstance(its.hidden, Sequence) and all(width >= 1 for width in its.hidden),
            "a sequence of positive widths",
        ),
        "dropout": (0 <= its.dropout < 1, "in [0, 1)"),
        "lr": (its.lr > 0, "positive"),
        "alpha": (its.alpha >= 0, "not negative"),
        "batch_size": (its.batch_size >= 1, "at least 1"),
        "steps": (its.steps is None or its.steps >= 1, "at least 1, or None"),
        "networks": (its.networks >= 1, "at least 1"),
        "threshold": (its.threshold is None or 0 < its.threshold < 1, "in (0, 1) or None"),
        "objective": (its.objective in OBJECTIVES, f"one of {', '.join(OBJECTIVES)}"),
    }
    for name, (good, expected) in ranges.items():
        if not good:
            raise ValueError(f"{name}: expected {expected}, got {getattr(its, name)!r}")
