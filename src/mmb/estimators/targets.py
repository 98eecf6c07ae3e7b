"""Reading `y`: one label per row, or a matrix with gaps, becomes a label matrix of tasks."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mmb._extras import require
from mmb.label_values import MISSING, as_labels

_sparse = require("scipy.sparse", extra="estimators")
_validation = require("sklearn.utils.validation", extra="estimators")
_multiclass = require("sklearn.utils.multiclass", extra="estimators")


class Targets(NamedTuple):
    """The label matrix of a `y`, and how to read predictions back."""

    # int8 `[n, m]` with 0, 1 and -1 for missing. Two classes are one task, the second of them positive; more
    # classes are a task each, one against the rest.
    labels: Tensor
    # the classes of a one-dimensional `y`, sorted; the numbers of the tasks of a matrix
    classes: np.ndarray[Any, Any]
    multilabel: bool  # whether `y` is a matrix


def read_targets(
    y: Any, classes: np.ndarray[Any, Any] | None = None, keep: np.ndarray[Any, Any] | None = None
) -> Targets:
    """Make a label matrix of the rows of `y` to `keep`: `[n]` with any labels, or `[n, m]` with 0 and 1.

    NaN and None are missing, and so is -1 in a matrix or next to both 0 and 1; labels -1 and 1 are two
    classes. The classes of a one-dimensional `y` may be known.
    """
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None")
    y = y.toarray() if _sparse.issparse(y) else y
    y = _validation.check_array(
        y, ensure_2d=False, dtype=None, ensure_all_finite="allow-nan", ensure_min_samples=0, input_name="y"
    )
    y = y if keep is None else y[keep]
    if y.ndim == 2 and y.shape[1] > 1:
        try:
            values = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"y: expected a matrix of 0, 1 and gaps (NaN or {MISSING}), got {y.dtype}, first {y.flat[0]}"
            ) from error
        _check_matrix(values)
        labels = as_labels(torch.as_tensor(np.where(values == MISSING, np.nan, values)))
        classes, multilabel = np.arange(y.shape[1]), True
    else:
        labels, classes = _read_column(_validation.column_or_1d(y, warn=True), classes)
        multilabel = False
    if not bool((labels != MISSING).any()):
        raise ValueError(f"y: every label is missing, got {len(labels)} rows; at least one needs a label")
    return Targets(labels, classes, multilabel)


def _check_matrix(values: np.ndarray[Any, Any]) -> None:
    """Refuse a matrix with anything but 0, 1 and gaps."""
    wrong = ~(np.isin(values, (0, 1, MISSING)) | np.isnan(values))
    if not wrong.any():
        return
    row, task = np.argwhere(wrong)[0]
    message = (
        f"y: expected 0, 1 and gaps (NaN or {MISSING}), got {values[row, task]:g} at row {row}, task {task}"
    )
    if set(values[wrong]) == {2}:
        message += (
            "; cross_val_predict gives the values of a matrix with gaps other numbers unless "
            "method='predict': fit and predict in a loop over the folds instead"
        )
    raise ValueError(message)


def _one_of_each(labels: np.ndarray[Any, Any]) -> str:
    """The first string and the first other label."""
    return " and ".join(
        repr(next(one for one in labels if isinstance(one, str) is text)) for text in (True, False)
    )


def _read_column(
    y: np.ndarray[Any, Any], classes: np.ndarray[Any, Any] | None
) -> tuple[Tensor, np.ndarray[Any, Any]]:
    """Labels `[n, m]` and classes of a one-dimensional `y`."""
    there = np.ones(len(y), bool)
    if y.dtype.kind == "f":
        there = ~np.isnan(y)
    elif y.dtype.kind == "O":
        there = np.array([label is not None and label == label for label in y], bool)
        known = np.array(y[there].tolist())
        if known.dtype.kind in "biuf" and len(known):  # numbers next to None are numbers
            y = np.where(there, y, known[0]).astype(known.dtype)
    if y.dtype.kind == "O" and len({isinstance(label, str) for label in y[there]}) == 2:
        raise ValueError(f"y: expected strings or numbers, got both, such as {_one_of_each(y[there])}")
    _multiclass.check_classification_targets(y[there])
    found = np.unique(y[there])
    if classes is not None:
        unknown = np.setdiff1d(found, [*classes, MISSING] if np.array_equal(classes, [0, 1]) else classes)
        if len(unknown):
            raise ValueError(f"y: labels {unknown.tolist()} are not among the classes {classes.tolist()}")
    elif y.dtype.kind != "U" and np.array_equal(found, [MISSING, 0, 1]):
        classes = found[1:]
    else:
        classes = found.astype(np.int64) if y.dtype.kind == "f" and not there.all() else found
        if y.dtype.kind != "U" and np.array_equal(found, [MISSING, 0]):
            warnings.warn(
                f"y: {MISSING} and 0 are taken for two classes; write gaps as NaN if the only label is 0",
                stacklevel=7,  # the line that calls `fit`, past its decorators
            )
    there &= np.isin(y, classes)
    number = torch.full((len(y),), MISSING, dtype=torch.int64)
    number[torch.as_tensor(there)] = torch.as_tensor(np.searchsorted(classes, y[there]))
    if len(classes) <= 2:
        return number.to(torch.int8).unsqueeze(1), classes
    one_hot = (number.unsqueeze(1) == torch.arange(len(classes))).to(torch.int8)
    one_hot[number == MISSING] = MISSING
    return one_hot, classes
