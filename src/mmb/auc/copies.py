"""Weight copies: one encoder and head per task, stacked, in a storage of its own choosing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from mmb.models.multitask import MultiTask


class WeightCopies(nn.Module):
    """A copy `u_i` of (encoder, head i) for every task, as one row of a matrix `[m, P]`.

    A row holds the trainable parameters of the encoder in order, then the head's weight and bias. Matrices
    are stored transposed, because that is how batched products give the gradients of linear layers. Only the
    rows of the sampled tasks are ever read or written, so they may live in a smaller dtype or in host memory.

    Args:
        model: Gives shapes and starting values: every copy starts at the model's own weights.
        dtype: Storage dtype; None is that of the model, and follows `.to(dtype)`.
        device: Storage device; None is that of the model, and follows `.to(device)`. Storage on another
            device than the model's makes every step wait for the transfer.

    Attributes:
        stacked: The copies, `[m, P]`.
        names: Names of the encoder's parameters that are copied.

    Raises:
        TypeError: If the model is no `MultiTask`, or its trainable parameters are of several dtypes.
        RuntimeError: If the copies do not fit in memory; the message says how large they are.
    """

    stacked: Tensor

    def __init__(
        self, model: MultiTask, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        if not isinstance(model, MultiTask):
            raise TypeError(
                f"model: expected an mmb.models.MultiTask (an encoder and one head per task), got "
                f"{type(model).__name__}; wrap your network without its last layer: "
                "MultiTask(encoder, num_features, num_tasks)"
            )
        self.names = [name for name, weight in model.encoder.named_parameters() if weight.requires_grad]
        shared = self.shared(model)
        dtypes = {weight.dtype for weight in (*shared, model.weight, model.bias)}
        if len(dtypes) > 1:
            raise TypeError(f"model: expected trainable parameters of one dtype, got {dtypes}")
        self.shapes = [weight.shape for weight in shared] + [model.weight.shape[1:], model.bias.shape[1:]]
        self.fixed_dtype = dtype
        self.fixed_device = None if device is None else torch.device(device)
        size = (len(model.weight), sum(shape.numel() for shape in self.shapes))
        try:
            stacked = torch.empty(
                size, dtype=dtype or model.weight.dtype, device=self.fixed_device or model.weight.device
            )
        except RuntimeError as error:
            gigabytes = size[0] * size[1] * (dtype or model.weight.dtype).itemsize / 2**30
            raise RuntimeError(
                f"{size[0]} copies of {size[1]:,} weights need {gigabytes:.1f} GiB; store them in a smaller "
                "dtype or in host memory: copies_dtype=torch.bfloat16, copies_device='cpu'"
            ) from error
        self.register_buffer("stacked", stacked)
        self.reset(model)

    @torch.no_grad()
    def reset(self, model: MultiTask) -> None:
        """Put every copy at the model's current weights."""
        for part, weight in zip(self.split(self.stacked), self.weights(model, None), strict=True):
            part.copy_(weight)

    def shared(self, model: MultiTask) -> list[nn.Parameter]:
        """The encoder's parameters that are copied."""
        return [model.encoder.get_parameter(name) for name in self.names]

    def weights(self, model: MultiTask, tasks: Tensor | None) -> tuple[Tensor, ...]:
        """The weights `w_i` that the copies follow: the encoder's, and the tasks' heads (`[k, ...]`)."""
        if tasks is None:
            return *self.shared(model), model.weight, model.bias
        return *self.shared(model), model.weight.index_select(0, tasks), model.bias.index_select(0, tasks)

    def gather(self, tasks: Tensor | None, like: Tensor) -> Tensor:
        """The copies of the tasks (None is all), `[k, P]`, in the dtype and on the device of `like`."""
        rows = self.stacked.clone() if tasks is None else self.stacked.index_select(0, self._local(tasks))
        return rows.to(like.device, like.dtype, non_blocking=True)

    def scatter_(self, tasks: Tensor | None, rows: Tensor) -> None:
        """Write the copies of the tasks back; all others stay bit-identical."""
        rows = rows.to(self.stacked.device, self.stacked.dtype)
        if tasks is None:
            self.stacked.copy_(rows)
        else:
            self.stacked.index_copy_(0, self._local(tasks), rows)

    def split(self, rows: Tensor) -> list[Tensor]:
        """The parameters in rows `[k, P]`, as views `[k, ...]`."""
        parts = torch.split(rows, [shape.numel() for shape in self.shapes], dim=1)
        return [
            part.view(-1, *shape[::-1]).mT if len(shape) == 2 else part.view(-1, *shape)
            for part, shape in zip(parts, self.shapes, strict=True)
        ]

    def check(self, model: nn.Module) -> MultiTask:
        """Return the model if the copies are of such a model.

        Raises:
            TypeError: If it is no `MultiTask`.
            ValueError: If its parameters have other shapes.
        """
        if not isinstance(model, MultiTask):
            raise TypeError(f"model: expected an mmb.models.MultiTask, got {type(model).__name__}")
        if len(model.weight) != len(self.stacked):
            raise ValueError(
                f"model has {len(model.weight)} heads but the objective has {len(self.stacked)} tasks"
            )
        known = dict(model.encoder.named_parameters())
        shapes = [known[name].shape for name in self.names if name in known]
        if [*shapes, model.weight.shape[1:], model.bias.shape[1:]] != self.shapes:
            raise ValueError("model: its parameters have other shapes than those the copies were made from")
        return model

    def _local(self, tasks: Tensor) -> Tensor:
        return tasks.to(self.stacked.device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # `.to()`, `.cuda()`, `.double()` come through here. What was chosen at the start stays as it is,
        # and is not even moved there and back: that might not fit.
        probe = fn(self.stacked.new_empty(0))
        self.stacked = self.stacked.to(self.fixed_device or probe.device, self.fixed_dtype or probe.dtype)
        return self
