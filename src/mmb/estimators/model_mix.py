"""Several models side by side, because no single one suits every data set, and how they see columns."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mmb.models.multilayer_perceptron import mlp

_RANGES = 8  # between quantiles of each column
_MOST = 2048  # inputs that may be added
_WAVES, _WIDTH, _FREQUENCY = 8, 4, 0.3  # of each column; how many numbers they become; periods per deviation


class ModelMix(nn.Module):
    """Logits of models that share nothing but their input: `[n, models * m]`, model by model.

    Trained for the mean of their losses, each is trained for its own, just as tasks are. They are

    - a perceptron with the given hidden layers, and a linear model;
    - where some columns have more than a few values, three that see more of them: a perceptron on cosines of
      the columns, for what is far from linear; another one, and a model without hidden layers (a sum of
      curves, one for each column), on ranges between quantiles, for thresholds.

    Without hidden layers, there is only the linear model. `penalties` are how strongly the weights of each
    model are held back, relative to the first.
    """

    def __init__(
        self,
        num_inputs: int,
        hidden: Sequence[int],
        num_tasks: int,
        dropout: float,
        encoding: PiecewiseLinear,
    ) -> None:
        super().__init__()
        self.models = nn.ModuleList([mlp(num_inputs, hidden, num_tasks, dropout)])
        self.penalties = [1.0]
        if len(hidden):
            self.models.append(mlp(num_inputs, (), num_tasks))
            self.penalties.append(1.0)
        if len(hidden) and len(encoding.columns):
            periodic = Periodic(num_inputs, torch.unique_consecutive(encoding.columns))
            own = copy.deepcopy(encoding)
            for inputs, layers, penalty in ((periodic, hidden, 0.5), (own, hidden, 0.25), (own, (), 4.0)):
                model = mlp(inputs.num_outputs, layers, num_tasks, dropout)
                self.models.append(nn.Sequential(inputs, model))
                self.penalties.append(penalty)
        for module in list(self.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.Dropout):
                    setattr(module, name, ByteDropout(child.p))

    def forward(self, inputs: Tensor) -> Tensor:
        """`[n, d]` to `[n, models * m]`."""
        return torch.cat([model(inputs) for model in self.models], 1)


class ByteDropout(nn.Module):
    """Dropout by random bytes: four times as fast on a processor as a random number for each unit."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.dropped = min(round(share * 256), 255)  # of 256

    def forward(self, x: Tensor) -> Tensor:
        """The input with some units zero, the others larger, in training mode."""
        if not self.training:
            return x
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= self.dropped
        return x * (kept * x.new_tensor(256 / (256 - self.dropped)))


class PiecewiseLinear(nn.Module):
    r"""Appends to the columns of its input how far each lies through the ranges between its quantiles.

    With the quantiles $q_0 \le \dots \le q_8$ of a column, a value $u$ becomes, besides itself,

    $$
    z_t = \min\left(\max\left(\frac{u - q_{t-1}}{q_t - q_{t-1}}, 0\right), 1\right), \qquad t = 1, \dots, 8,
    $$

    standardized (Gorishniy et al., 2022). Columns with few distinct values have fewer ranges; those with
    fewer than two are left unchanged, and so are all columns if there are too many.
    """

    columns: Tensor  # of each range
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
        self.register_buffer("columns", wide.nonzero()[:, 0])
        self.register_buffer("low", edges[:, :-1][wide].float())
        self.register_buffer("width", edges.diff(dim=1)[wide].float())
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

    A value $u$ becomes, besides itself, $A \cos(c u + p) + b$, four numbers made of eight cosines (Gorishniy
    et al., 2022; Holzmüller et al., 2024).
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
