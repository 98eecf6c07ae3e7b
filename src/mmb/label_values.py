"""What a label may be: 0, 1, or missing."""

import torch
from torch import Tensor

MISSING = -1
"""The label of a row that was never measured for a task."""

_DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)


def as_labels(matrix: Tensor) -> Tensor:
    """Turn a label matrix with gaps into int8 with -1 for missing.

    Args:
        matrix: `[n, m]` or `[n]` with 0, 1 and missing (NaN in floating point, -1 in signed integers).

    Returns:
        int8 `[n, m]`.

    Raises:
        TypeError: If `matrix` is not a tensor, or of a dtype that labels cannot have.
        ValueError: If it is neither `[n, m]` nor `[n]`, empty, or holds something but 0, 1, missing.
    """
    if not isinstance(matrix, Tensor):
        raise TypeError(
            f"labels must be a torch.Tensor, got {type(matrix).__name__}; use torch.as_tensor(...)"
        )
    if matrix.dim() not in (1, 2):
        raise ValueError(f"labels must be [rows, tasks] or [rows], got shape {tuple(matrix.shape)}")
    if matrix.numel() == 0:
        raise ValueError(f"labels is empty: shape {tuple(matrix.shape)}; expected [rows, tasks]")
    matrix = matrix.unsqueeze(1) if matrix.dim() == 1 else matrix
    check_values(matrix)
    if matrix.is_floating_point():
        return matrix.nan_to_num(nan=float(MISSING)).to(torch.int8)
    return matrix.to(torch.int8)


def check_values(labels: Tensor) -> None:
    """Raise ValueError naming the first label outside {0, 1, missing}; this waits for a GPU's values.

    Raises:
        TypeError: If labels cannot have the dtype.
    """
    if labels.dtype == torch.bool:
        return
    if labels.dtype not in _DTYPES:
        raise TypeError(
            "labels must be of a bool, uint8, signed integer or 16 to 64 bit float dtype, "
            f"got {labels.dtype}; use labels.to(torch.int8)"
        )
    # arithmetic and extremes: on a CPU several times faster than comparing every entry
    if labels.is_floating_point():
        known = labels.nan_to_num(nan=0.0)
        good = not any(float(v) for v in (known * known - known).aminmax())
    else:
        low, high = (int(v) for v in labels.aminmax())  # torch compares -1 with uint8 as if it were 255
        good = low >= MISSING and high <= 1
    if good:
        return
    missing = labels.isnan() if labels.is_floating_point() else (labels == MISSING) & labels.dtype.is_signed
    place = (~((labels == 0) | (labels == 1) | missing)).nonzero()[0].tolist()
    raise ValueError(
        f"labels must be 0, 1 or missing (NaN in floating point, {MISSING} in integers); "
        f"got {labels[tuple(place)].item()} in {labels.dtype} at index {place} of shape {tuple(labels.shape)}"
    )


def rarest_positive(labels: Tensor) -> Tensor:
    """For each row of labels `[n, m]`, the rarest task for which it is positive, `[n]`; `m` if none."""
    positive = labels == 1
    counts = torch.where(positive, positive.sum(0), len(labels) + 1)
    return torch.where(positive.any(1), counts.argmin(1), labels.shape[1])
