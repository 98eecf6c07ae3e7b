"""Batch norm that is right for the batch it sees, and for the rows it is used on afterwards.

In training, batch norm normalizes by the statistics of the batch; in evaluation, by running averages of them.
With the batches of this package, that goes wrong in three ways:

* **Task-sampled and rich rows** hold far more positives than the data, so the running averages describe other
  rows than those the model is used on. Before evaluating, `recalibrate_batch_norm` on rows drawn uniformly;
  or fine-tune a pretrained model with `freeze_batch_norm`, which makes training and evaluation compute the
  same function.
* **Compositional training** evaluates one set of weights per task under `torch.func.vmap`. Each task's rows
  are then normalized by their own statistics (in a flat batch: by those of all rows together), which a
  single running average cannot hold: `TaskwiseModel` gives every task its own buffers, and moves the
  model's to their mean; your own `vmap` can run inside `untracked_batch_norm`. Recalibrate before evaluation,
  or freeze. `MaskedBatchNorm` leaves rows that pad to a common length out of the statistics.
* **Dropout** before a batch norm adds to the spread that it sees in training, but not in evaluation:
  recalibrate, which turns dropout off.

Everything here works on any module made of torch's own batch norm layers.
"""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmb.models.masked_norm import by_kernels, by_operations, in_kernels


class MaskedBatchNorm(nn.BatchNorm1d):
    r"""Batch norm over the rows of `[n, channels]`, some of which may be padding.

    With mask $m_i \in \{0, 1\}$, statistics are $\mu = \sum_i m_i x_i / \sum_i m_i$ and
    $\sigma^2 = \sum_i m_i (x_i - \mu)^2 / \sum_i m_i$. Without a mask it is `torch.nn.BatchNorm1d`.
    """

    def forward(self, input: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalize `input [n, channels]`; rows where `mask` (`bool [n]`) is false do not count."""
        if mask is None or not self.training:
            # Torch's GPU kernels for rows with gaps between them take forty times as long as for others.
            return super().forward(input.contiguous())
        given = (input, self.weight, self.bias, mask, self.eps)
        output, mean, variance = by_kernels(*given) if in_kernels(input) else by_operations(*given)
        if self.track_running_stats:
            count = mask.sum().clamp(min=2)
            self._track(mean, variance * (count / (count - 1)))
        return output

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running averages, as the base class does."""
        running_mean, running_var, batches = self.running_mean, self.running_var, self.num_batches_tracked
        assert running_mean is not None
        assert running_var is not None
        assert batches is not None
        batches.add_(1)
        step: Tensor | float = self.momentum if self.momentum is not None else 1 / batches
        running_mean.add_(step * (mean - running_mean))
        running_var.add_(step * (variance - running_var))


class FrozenBatchNorm(nn.Module):
    """Batch norm by the running statistics of `norm`, in training too; all its tensors keep their names."""

    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__()
        if norm.running_mean is None:
            raise ValueError("cannot freeze a batch norm layer without running statistics")
        self.eps = norm.eps
        for name in ("weight", "bias"):
            self.register_parameter(name, getattr(norm, name))
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(norm, name))

    def forward(self, input: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalize `input`; the mask is ignored, since padding does no harm here."""
        return nn.functional.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
        )


def freeze_batch_norm(model: nn.Module) -> int:
    """Replace every batch norm layer by one that keeps its running statistics; weight and bias still learn.

    Names in the state dict stay as they are.

    Args:
        model: Changed in place. It must not itself be a batch norm layer.

    Returns:
        Number of frozen layers.

    Raises:
        ValueError: If a layer has no running statistics; the model is then unchanged.
    """
    frozen = [
        (parent, name, FrozenBatchNorm(child))
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, _BatchNorm)
    ]
    for parent, name, layer in frozen:
        setattr(parent, name, layer)
    return len(frozen)


@contextmanager
def untracked_batch_norm(model: nn.Module) -> Iterator[None]:
    """Leave the running averages alone in training mode: for passes under `torch.func.vmap`, for example."""
    tracking = _tracking_layers(model)
    for layer in tracking:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in tracking:
            layer.track_running_stats = True


@torch.no_grad()
def recalibrate_batch_norm(model: nn.Module, batches: Iterable[Any]) -> int:
    """Set the running statistics to the plain average over some batches, with dropout and the like off.

    Use rows like those the model will meet: drawn uniformly, not by task. A few thousand are enough.

    Args:
        model: Its running statistics are replaced; modes and all else stay the same.
        batches: Inputs of the model, one item per call. They should be of equal size, so that the average is
            one over rows.

    Returns:
        Number of batches used.

    Raises:
        ValueError: If there are no batches. Then, or if the model fails, statistics do not change.
    """
    layers = _tracking_layers(model)
    modes = [(module, module.training) for module in model.modules()]
    momenta = [layer.momentum for layer in layers]
    before = [copy.deepcopy(layer.state_dict()) for layer in layers]
    model.eval()
    used, finished = 0, False
    try:
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # the plain average over the batches
            layer.train()
        for inputs in batches:
            model(inputs)
            used += 1
        if used == 0:
            raise ValueError("batches: got none, expected at least one batch of rows")
        finished = True
    finally:
        for layer, momentum, state in zip(layers, momenta, before, strict=True):
            layer.momentum = momentum
            if not finished:
                layer.load_state_dict(state)
        for module, training in modes:
            module.training = training
    return used


def _tracking_layers(model: nn.Module) -> list[_BatchNorm]:
    """The batch norm layers of a model that keep running averages and are not frozen."""
    return [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
