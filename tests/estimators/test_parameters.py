"""Parameters out of their range."""

import math

import numpy as np
import pytest

from mmb.estimators import MultiTaskAUCClassifier


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("objective", "nonsense"),
        ("max_fpr", 0.0),
        ("hidden", (0,)),
        ("hidden", 64),
        ("dropout", 1.0),
        ("lr", 0.0),
        ("alpha", -1.0),
        ("batch_size", 0),
        ("steps", 0),
        ("networks", 0),
        ("threshold", 1.0),
        *((name, "x") for name in ("max_fpr", "dropout", "lr", "alpha", "batch_size", "steps", "networks")),
        *((name, 2.5) for name in ("batch_size", "steps", "networks")),
        *((name, math.inf) for name in ("lr", "alpha")),
        ("hidden", (2.5,)),
        ("threshold", "x"),
        ("max_fpr", None),
        ("objective", ["ce"]),
    ],
)
def test_bad_parameters_are_named(name, value):
    with pytest.raises(ValueError, match=f"^{name}: expected .*, got "):
        MultiTaskAUCClassifier(**{name: value}).fit(np.eye(4), [0, 1, 0, 1])
