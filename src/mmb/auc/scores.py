"""From logits to the scores an objective compares: how they are squashed, and the slope of it."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

Transform = Literal["sigmoid", "logit", "recentred"]


def check_transform(transform: str, allowed: tuple[str, ...] = get_args(Transform)) -> None:
    """Raise ValueError unless the transform is among those allowed."""
    if transform not in allowed:
        raise ValueError(f"scores must be one of {', '.join(allowed)}; got {transform!r}")


def squash(logits: Tensor, transform: Transform, centre: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Scores `h` and their slope `dh/dlogit`.

    Args:
        logits: `[rows, k]`.
        transform: `"sigmoid"`: `h = sigmoid(logit)`; `"logit"`: `h = logit`; `"recentred"`:
            `h = sigmoid(logit - centre)`.
        centre: `[k]`, of each task, for `"recentred"`.

    Returns:
        `h` and `dh/dlogit`, both of the logits' shape (the slope of `"logit"` is a scalar one).
    """
    if transform == "logit":
        return logits, logits.new_ones(())
    score = torch.sigmoid(logits if centre is None else logits - centre)
    return score, torch.addcmul(score, score, score, value=-1)  # h - h^2
