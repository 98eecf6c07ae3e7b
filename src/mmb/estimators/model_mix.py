"""Models of several kinds side by side, because no one kind suits every data set."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mmb.estimators.encoding import Periodic, PiecewiseLinear
from mmb.models.multilayer_perceptron import mlp


class Kinds(nn.Module):
    """Logits of models that share nothing but their input: `[n, kinds * m]`, kind by kind.

    Trained for the mean of their losses, each is trained for its own, as tasks would be. They are

    - a perceptron with the given hidden layers, and a linear model;
    - where some columns have more than a few values, three that see more of them: a perceptron of all layers
      on cosines of the columns, for what is far from linear; one of the first layer alone, and a model
      without hidden layers (a sum of curves, one for each column), on ranges between quantiles.

    Args:
        num_inputs: Columns of the data.
        hidden: Widths of the hidden layers. Without any, there is only the linear model.
        num_tasks: Number of tasks `m`.
        dropout: Share of the hidden units dropped in training.
        encoding: The ranges between quantiles.

    Attributes:
        models: The models.
        penalties: For each, how strongly its weights are held back, beside the first.
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
            periodic, own = (
                Periodic(num_inputs, torch.unique_consecutive(encoding.columns)),
                copy.deepcopy(encoding),
            )
            for inputs, layers, penalty in ((periodic, hidden, 0.5), (own, hidden[:1], 4.0), (own, (), 4.0)):
                model = mlp(inputs.num_outputs, layers, num_tasks, dropout)
                self.models.append(nn.Sequential(inputs, model))
                self.penalties.append(penalty)
        for module in list(self.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.Dropout):
                    setattr(module, name, _Dropout(child.p))

    def forward(self, inputs: Tensor) -> Tensor:
        """`[n, d]` to `[n, kinds * m]`."""
        return torch.cat([model(inputs) for model in self.models], 1)


class _Dropout(nn.Module):
    """Dropout by random bytes: four times as fast on a processor as a random number for each unit."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.dropped = min(round(share * 256), 255)  # of 256

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= self.dropped
        return x * (kept * x.new_tensor(256 / (256 - self.dropped)))
