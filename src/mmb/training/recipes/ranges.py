"""What the numbers of a recipe may be, where no later check would tell before work is done in vain."""

from __future__ import annotations

import math
from collections.abc import Callable

from mmb.training.recipes.recipe import Recipe

_RANGES: list[tuple[str, Callable[[float], bool], tuple[str, ...]]] = [
    (
        "at least 1",
        lambda value: value >= 1,
        (
            *("training.steps", "training.evaluate_every", "training.checkpoint_every", "training.log_every"),
            *("training.patience", "training.keep_checkpoints", "training.evaluation_batch_size"),
            *("sampler.batch_size", "sampler.tasks_per_step"),
        ),
    ),
    (
        "a positive number",
        lambda value: 0 < value < math.inf,
        ("training.epochs", "optimizer.clip", "schedule.factor"),
    ),
    (
        "a number of at least 0",
        lambda value: 0 <= value < math.inf,
        ("optimizer.lr", "optimizer.weight_decay", "schedule.warmup"),
    ),
    ("at least 0 and less than 1", lambda value: 0 <= value < 1, ("optimizer.momentum", "optimizer.betas")),
    ("more than 0 and at most 1", lambda value: 0 < value <= 1, ("training.max_fpr",)),
]


def check_ranges(recipe: Recipe) -> None:
    """Look at the numbers of a recipe; None, where a key may be left open, always fits.

    Raises:
        ValueError: Naming the first key whose value does not fit, and what would.
    """
    for expected, fits, keys in _RANGES:
        for key in keys:
            section, name = key.split(".")
            value = getattr(getattr(recipe, section), name)
            numbers = value if isinstance(value, tuple | list) else [value]
            if not all(number is None or fits(number) for number in numbers):
                raise ValueError(f"{key}: expected {expected}, got {value}")
