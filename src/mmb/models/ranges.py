"""Numbers as positions in ranges, so that a network can treat each range differently."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

_ENDS = 0.01  # share of a normal distribution beyond the outermost edges
_MOST = 4096  # inputs that may be added


class Ranges(nn.Module):
    r"""Appends to its input how far some of its columns lie through ranges of values.

    With the edges $q_0 < \dots < q_K$, a standardized number $u$ becomes, besides itself,

    $$
    z_t = \min\left(\max\left(\frac{u - q_{t-1}}{q_t - q_{t-1}}, 0\right), 1\right) - \tfrac12,
    \qquad t = 1, \dots, K
    $$

    (Gorishniy et al., 2022). A linear layer after it is a curve of each column with $K$ pieces, and its slope
    may be steep within one range without being so in all others. The edges divide a normal distribution into
    parts of equal probability, so they need no data, and columns that are not normal are still divided where
    most of their values lie.

    Args:
        num_inputs: Columns of the input `[..., num_inputs]`.
        ranges: Number of ranges `K`. If the columns are so many that more than 4,096 numbers would be added,
            there are fewer ranges; with fewer than two, nothing is added.
        columns: Which columns are numbers; all of them by default.
    """

    columns: Tensor
    low: Tensor
    width: Tensor

    def __init__(self, num_inputs: int, ranges: int, columns: Sequence[int] | None = None) -> None:
        super().__init__()
        chosen = torch.arange(num_inputs) if columns is None else torch.tensor(columns, dtype=torch.int64)
        if len(chosen) and not 0 <= int(chosen.min()) <= int(chosen.max()) < num_inputs:
            raise ValueError(f"columns: expected numbers from 0 to {num_inputs - 1}, got {chosen.tolist()}")
        count = min(ranges, _MOST // max(1, len(chosen)))
        count = count if count > 1 else 0
        shares = torch.linspace(_ENDS, 1 - _ENDS, count + 1, dtype=torch.float64)
        edges = torch.special.ndtri(shares).float()
        self.num_outputs = num_inputs + count * len(chosen)
        # They follow from the arguments, so they are not among the weights.
        self.register_buffer("columns", chosen, persistent=False)
        self.register_buffer("low", edges[:-1], persistent=False)
        self.register_buffer("width", edges.diff(), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """`[..., num_inputs]` to `[..., num_outputs]`."""
        numbers = inputs.index_select(-1, self.columns).unsqueeze(-1)
        places = ((numbers - self.low) / self.width).clamp(0, 1) - 0.5
        return torch.cat([inputs, places.flatten(-2)], -1)
