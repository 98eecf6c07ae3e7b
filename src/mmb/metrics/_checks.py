"""Checks of scores and labels; every message names the argument, the value and what was expected."""

import torch
from torch import Tensor

_INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_pair(scores: Tensor, labels: Tensor) -> None:
    """Check types, shapes and devices."""
    for name, value in (("scores", scores), ("labels", labels)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}: expected a torch.Tensor, got {type(value).__name__}")
        if value.dtype not in _INTEGERS + _FLOATS:
            raise TypeError(
                f"{name}: expected a bool, integer or 16 to 64 bit float dtype, got {value.dtype}"
            )
    if scores.shape != labels.shape or scores.dim() not in (1, 2):
        raise ValueError(
            "scores, labels: expected the same shape [n] or [n, m], "
            f"got {list(scores.shape)} and {list(labels.shape)}"
        )
    if scores.device != labels.device:
        raise ValueError(
            f"scores, labels: expected the same device, got {scores.device} and {labels.device}; move one"
        )


def check_labels(labels: Tensor) -> tuple[Tensor, Tensor | None]:
    """Where the `[n, m]` labels are positive, and where they are not missing (None: nowhere missing)."""
    positive = labels == 1
    labeled = positive | (labels == 0)
    if labels.numel() and labeled.view(torch.uint8).all():  # bytes are compared much faster than booleans
        return positive, None
    if labels.is_floating_point():
        missing, mark = labels.isnan(), "NaN"
    else:  # torch takes -1 for 255 when it compares it with an unsigned tensor
        missing, mark = (labels == -1) & labels.dtype.is_signed, "-1"
    known = labeled | missing
    if not known.view(torch.uint8).all():
        row, task = (~known).nonzero()[0].tolist()
        raise ValueError(
            f"labels: expected 0, 1 or missing ({mark} in {labels.dtype}), "
            f"got {labels[row, task].item()} at row {row}, task {task}"
        )
    if not labeled.any():
        raise ValueError(
            f"labels: expected at least one that is not missing, got none in {list(labels.shape)}"
        )
    return positive, labeled


def check_scores(scores: Tensor, labeled: Tensor | None) -> None:
    """Refuse scores without a place in the order: NaN and infinities (an overflow), the least int64."""
    if scores.is_floating_point():
        if torch.stack(scores.aminmax()).isfinite().all():
            return  # the usual case in one fast pass: both extremes are NaN if any score is
        wrong = ~scores.isfinite()
    else:
        wrong = scores.long() == torch.iinfo(torch.int64).min
    if labeled is not None:
        wrong &= labeled
    if wrong.any():
        row, task = wrong.nonzero()[0].tolist()
        raise ValueError(
            "scores: expected finite numbers wherever labels are not missing, "
            f"got {scores[row, task].item()} at row {row}, task {task}"
        )
