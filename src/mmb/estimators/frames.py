"""`X` as numbers: columns of names in a pandas or polars frame are encoded, and gaps are filled."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmb._extras import require
from mmb.data.files.table import Names, Table, as_names
from mmb.data.inputs.columns import ColumnEncoder
from mmb.data.inputs.fit_columns import fit_columns

_sparse = require("scipy.sparse", extra="estimators")
_validation = require("sklearn.utils.validation", extra="estimators")
Array = np.ndarray[Any, Any]


def text_columns(X: Any) -> list[Any]:
    """Names of the columns of a frame that are neither numbers nor bool; none if it is not a frame."""
    if hasattr(X, "collect") and not hasattr(X, "__array__"):
        raise TypeError(f"X: got a {type(X).__name__}, which has no rows yet: give X.collect()")
    if not (hasattr(X, "columns") and hasattr(X, "dtypes") and hasattr(X, "__getitem__")):
        return []
    repeated = [name for name, times in Counter(X.columns).items() if times > 1]
    if repeated:
        raise ValueError(f"X: expected different names of columns, got {repeated[:5]} more than once")
    return [name for name in X.columns if not _is_numeric(X[name].dtype)]


def _is_numeric(dtype: Any) -> bool:
    """Whether a dtype of pandas or polars is of numbers or bool."""
    if hasattr(dtype, "is_numeric"):  # polars
        return bool(dtype.is_numeric()) or str(dtype) == "Boolean"
    return getattr(dtype, "kind", "O") in "biuf"


@dataclass(frozen=True)
class FrameColumns(Table):
    """Columns of a frame, read as cells of a table."""

    frame: Any
    path: Path = Path("X")
    first: int = 0

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        return [str(name) for name in self.frame.columns]

    def without(self, name: str) -> str:
        """How to do without a column, for messages."""
        return f"leave column {name!r} out of X"

    def cells(self, name: str) -> list[str]:
        """A column as text, empty for a gap."""
        column = self.frame[name]
        gaps = column.isna() if hasattr(column, "isna") else column.is_null()
        return ["" if gap else str(cell) for cell, gap in zip(column, gaps, strict=True)]

    def names(self, name: str) -> Names:
        """A column as names."""
        return as_names(self.cells(name))

    def numbers(self, name: str) -> Tensor:
        """A column as numbers; see `Table`."""
        return self.names(name).numbers()


class Columns:
    """What was learned about the columns of `X`: how names are encoded, and what fills gaps."""

    def __init__(self) -> None:
        self._encoder: ColumnEncoder | None = None
        self._text: list[Any] = []
        self._fill: Array | None = None

    def read(self, estimator: Any, X: Any, fresh: bool) -> Any:
        """`X` as an array or a sparse matrix of compressed rows, without gaps; if `fresh`, learns first."""
        if fresh:
            self._text = text_columns(X)
        if self._text:
            _validation.validate_data(estimator, X, reset=fresh, skip_check_array=True)
            if not hasattr(X, "columns"):
                raise ValueError(
                    f"X: expected a frame with the columns of `fit`, some of which are names "
                    f"({self._text[:5]}), got {type(X).__name__}"
                )
            X = self._encoded(X, fresh)
            x = _validation.check_array(X, dtype=(np.float64, np.float32), ensure_all_finite="allow-nan")
        else:
            x = _validation.validate_data(
                estimator,
                X,
                accept_sparse="csr",
                dtype=(np.float64, np.float32),
                ensure_all_finite="allow-nan",
                reset=fresh,
            )
        return self._filled(x)

    def _encoded(self, X: Any, fresh: bool) -> Array:
        """Numbers as they are, beside the encoded names."""
        table = FrameColumns(X)
        if fresh:
            self._encoder = fit_columns(table, self._text, torch.arange(len(X)))
        assert self._encoder is not None
        self._encoder.refuse_unreadable(table)
        inputs, _ = self._encoder.encode(table)
        numbers = [_as_floats(X[name], name) for name in X.columns if name not in self._text]
        return np.column_stack([*numbers, inputs.double().numpy()])

    def _filled(self, x: Any) -> Any:
        """Gaps filled: by zero in a sparse matrix, else by the median of the column when it was learned."""
        if _sparse.issparse(x):
            if np.isnan(x.data).any():
                x = x.copy()
                x.data[np.isnan(x.data)] = 0.0
            return x
        gaps = np.isnan(x)
        if self._fill is None:
            self._fill = np.zeros(x.shape[1])
            for column in range(x.shape[1]):
                known = x[~gaps[:, column], column]
                self._fill[column] = np.median(known) if len(known) else 0.0
        return np.where(gaps, self._fill.astype(x.dtype), x) if gaps.any() else x


def _as_floats(column: Any, name: Any) -> Array:
    """A column of numbers or bool with NaN for gaps."""
    try:
        if hasattr(column, "cast"):  # polars
            return np.asarray(column.to_numpy(), dtype=np.float64)
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    except (TypeError, ValueError) as error:
        raise ValueError(f"X: column {name!r} has numbers in `fit`, got {column.dtype} ({error})") from error
