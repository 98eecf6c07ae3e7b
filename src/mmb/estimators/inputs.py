"""Dense or sparse rows as standardized network inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmb._extras import require
from mmb.data.inputs.quartiles import quartile_deviation, squash

_sparse = require("scipy.sparse", extra="estimators")
_preprocessing = require("sklearn.preprocessing", extra="estimators")

_FARTHEST = 1e100  # spreads; infinity cannot be squashed
_ROUNDING = 1e-9  # share of a number that may be rounding
_COIN = 0.5  # deviation of zeros and ones, half of each
_CHUNK = 1 << 22  # numbers made dense at a time


class Standardizer:
    r"""Learns the center and spread of each column, and squashes outliers.

    $$
    x \mapsto \frac{u}{\sqrt{1 + (u / 4)^2}}, \qquad u = \frac{x - \text{center}}{\text{spread}}
    $$

    keeps the order, but a rare bit or a heavy tail does not outweigh all else. The center is the mean and the
    spread the standard deviation, except where half of the (first) rows lie closer together than half of a
    normal distribution would. There, tails have widened the deviation: the center is the median, the spread
    the deviation of a normal distribution with the same quartiles. Columns of zeros and ones (in the first
    rows) have a spread of one half, that of a fair coin, however rare the ones are: divided by their own
    deviation, the rarest bits would be the loudest. For sparse rows the center is zero, so that zeros stay
    zeros. Constant columns become 0.
    """

    def __init__(self, sparse: bool) -> None:
        self._scaler = _preprocessing.StandardScaler(with_mean=not sparse)
        self._shift: Any = 0.0  # of the center from the mean, in deviations
        self._ratio: Any = None  # of the spread to the deviation

    def learn(self, x: Any, weights: np.ndarray[Any, Any]) -> None:
        """Take rows `[n, d]` with their weights `[n]` into account, besides those of earlier calls."""
        with np.errstate(over="ignore", invalid="ignore"):
            self._scaler.partial_fit(x, sample_weight=weights)
        too_large = np.flatnonzero(~np.isfinite(self._scaler.var_))
        if len(too_large):
            raise ValueError(f"X: column {too_large[0]} has values too large to compute with; rescale it")
        if self._ratio is None:
            scale, binary = self._scaler.scale_, _zeros_and_ones(x)
            self._ratio = np.where(binary, _COIN / scale, 1.0)
            if self._scaler.with_mean:
                low, middle, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
                ratio = quartile_deviation(low, high) / scale
                rounding = _ROUNDING * np.maximum(np.abs(low), np.abs(high))
                narrow = (high - low > rounding) & (ratio < 1) & ~binary
                self._shift = np.where(narrow, (middle - self._scaler.mean_) / scale, 0.0)
                self._ratio = np.where(narrow, ratio, self._ratio)

    def __call__(self, x: Any, dtype: torch.dtype) -> Tensor:
        """Network inputs `[n, d]` of some rows."""
        if self._scaler.with_mean or not _sparse.issparse(x):
            x = np.asarray(x.toarray() if _sparse.issparse(x) else x, np.float64)
            mean = self._scaler.mean_ if self._scaler.with_mean else 0.0
            return _squashed(((x - mean) / self._scaler.scale_ - self._shift) / self._ratio).to(dtype)
        x = x.tocsr(copy=True)  # zeros stay zeros: only the others need to be computed
        x.sum_duplicates()
        u = x.data.astype(np.float64) / self._scaler.scale_[x.indices] / self._ratio[x.indices]
        filled = (_squashed(u).to(dtype).numpy(), x.indices, x.indptr)
        return torch.as_tensor(_sparse.csr_array(filled, shape=x.shape).toarray())


def _squashed(u: np.ndarray[Any, Any]) -> Tensor:
    """Deviations, leveled off."""
    return squash(torch.as_tensor(np.clip(u, -_FARTHEST, _FARTHEST)))


def _zeros_and_ones(x: Any) -> np.ndarray[Any, Any]:
    """Bool `[d]`: columns that hold nothing else."""
    if not _sparse.issparse(x):
        return np.asarray(((x == 0) | (x == 1)).all(0))
    found = np.ones(x.shape[1], dtype=bool)
    found[x.indices[(x.data != 0) & (x.data != 1)]] = False
    return found


class Rows:
    """Network inputs `[n, d]` of rows of an array, standardized once, or a sparse matrix, when needed."""

    def __init__(self, x: Any, standardize: Standardizer) -> None:
        self._x, self._standardize = x, standardize
        self._dense: dict[torch.dtype, Tensor] = {}
        self._rows = torch.arange(x.shape[0])
        self._chunk = max(1, _CHUNK // x.shape[1])

    def only(self, chosen: Tensor) -> Rows:
        """The rows where the bool `[n]` is true; the data itself is shared."""
        part = copy.copy(self)
        part._rows = self._rows[chosen]
        return part

    def take(self, places: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Inputs `[k, d]` of the rows at some places `[k]`."""
        rows = self._rows[places]
        if self.sparse:
            return self._standardize(self._x[rows.numpy()], dtype)
        if dtype not in self._dense:
            self._dense[dtype] = self._standardize(self._x, dtype)
        return self._dense[dtype][rows]

    def sample(self) -> Tensor:
        """Inputs `[k, d]` of evenly spaced rows, as many as may be made dense at a time."""
        return self.take(torch.arange(0, len(self._rows), -(-len(self._rows) // self._chunk)))

    @property
    def sparse(self) -> bool:
        """Whether rows are sparse, and so not centered."""
        return bool(_sparse.issparse(self._x))

    @property
    def num_columns(self) -> int:
        """`d`."""
        return int(self._x.shape[1])

    def map(self, function: Callable[[Tensor], Tensor], dtype: torch.dtype = torch.float32) -> Tensor:
        """What a function gives for the inputs `[n, d]` of all rows, some at a time."""
        return torch.cat([function(self.take(part, dtype)) for part in self._parts()])

    def mean(self, weights: Tensor) -> Tensor:
        """Mean of the inputs of all rows, with weights `[n]`, float64 `[d]`."""
        sums = [weights[part].double() @ self.take(part, torch.float64) for part in self._parts()]
        return torch.stack(sums).sum(0) / weights.double().sum()

    def scores(self, model: torch.nn.Module, offset: Tensor | None = None) -> Tensor:
        """Logits `[n, m]` of a model in evaluation mode, in its precision; of inputs less an offset `[d]`."""
        training, dtype = model.training, next(model.parameters()).dtype
        model.eval()
        with torch.no_grad():
            found = self.map(lambda x: model(x if offset is None else x - offset.to(dtype)), dtype)
        model.train(training)
        return found

    def _parts(self) -> tuple[Tensor, ...]:
        """Places of the rows, as many at a time as may be made dense."""
        return torch.split(torch.arange(len(self._rows)), self._chunk)
