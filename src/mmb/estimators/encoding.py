"""Columns laid out so that networks learn steps, bends and waves in them as readily as slopes."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_RANGES = 8  # between quantiles of each column
_MOST = 2048  # inputs that may be added
_WAVES, _WIDTH, _FREQUENCY = 8, 4, 0.3  # of each column; how many numbers they become; periods per deviation


class PiecewiseLinear(nn.Module):
    r"""Appends to the columns of its input how far each lies through the ranges between its quantiles.

    With the quantiles $q_0 \le \dots \le q_8$ of a column, a value $u$ becomes, beside itself,

    $$
    z_t = \min\left(\max\left(\frac{u - q_{t-1}}{q_t - q_{t-1}}, 0\right), 1\right), \qquad t = 1, \dots, 8,
    $$

    standardised (Gorishniy et al., 2022). Columns with few distinct values have fewer ranges; those
    with fewer than two are left as they are, and so are all where there are too many.

    Args:
        inputs: Rows `[n, d]` to take the quantiles of.

    Attributes:
        columns: int64 `[ranges]`: the column of each range.
        num_outputs: `d` and the number of ranges.
    """

    columns: Tensor
    low: Tensor
    width: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self, inputs: Tensor) -> None:
        super().__init__()
        inputs = inputs.double()
        count = min(_RANGES, _MOST // max(1, inputs.shape[1]))
        shares = torch.linspace(0, 1, count + 1, dtype=torch.float64)
        places = (shares * (len(inputs) - 1)).round().long()
        edges = inputs.sort(0).values[places].T  # [d, ranges + 1]
        wide = edges.diff(dim=1) > 1e-9
        wide &= wide.sum(1, keepdim=True) > 1
        found = {"low": edges[:, :-1][wide], "width": edges.diff(dim=1)[wide]}
        self.register_buffer("columns", wide.nonzero()[:, 0])
        for name, values in found.items():
            self.register_buffer(name, values.float())
        ranges = self._ranges(inputs.float())
        self.register_buffer("mean", ranges.mean(0))
        self.register_buffer("deviation", (ranges - self.mean).square().mean(0).sqrt().clamp(min=1e-3))
        self.num_outputs = inputs.shape[1] + len(self.columns)

    def forward(self, inputs: Tensor) -> Tensor:
        """`[n, d]` to `[n, d + ranges]`."""
        return torch.cat([inputs, (self._ranges(inputs) - self.mean) / self.deviation], 1)

    def _ranges(self, inputs: Tensor) -> Tensor:
        return ((inputs[:, self.columns] - self.low) / self.width).clamp(0, 1)


class Periodic(nn.Module):
    r"""Appends to its input a mix of cosines of some of its columns, frequencies and phases learned.

    A value $u$ becomes, beside itself, $A \cos(c u + p) + b$, four numbers made of eight cosines (Gorishniy
    et al., 2022; Holzmüller et al., 2024).

    Args:
        num_inputs: Number of columns.
        columns: int64 `[k]`: those to take cosines of.
    """

    columns: Tensor

    def __init__(self, num_inputs: int, columns: Tensor) -> None:
        super().__init__()
        self.register_buffer("columns", columns)
        count, bound = len(columns), 1 / math.sqrt(_WAVES)
        self.frequency = nn.Parameter(2 * math.pi * _FREQUENCY * torch.randn(count, 1, _WAVES))
        self.phase = nn.Parameter(math.pi * (2 * torch.rand(count, 1, _WAVES) - 1))
        self.weight = nn.Parameter(bound * (2 * torch.rand(count, _WAVES, _WIDTH) - 1))
        self.bias = nn.Parameter(bound * (2 * torch.rand(count, 1, _WIDTH) - 1))
        self.num_outputs = num_inputs + count * _WIDTH

    def forward(self, inputs: Tensor) -> Tensor:
        """`[n, d]` to `[n, d + 4 k]`."""
        waves = torch.cos(inputs.T[self.columns].unsqueeze(2) * self.frequency + self.phase)  # [k, n, waves]
        mixed = torch.baddbmm(self.bias, waves, self.weight)
        return torch.cat([inputs, mixed.transpose(0, 1).flatten(1)], 1)
