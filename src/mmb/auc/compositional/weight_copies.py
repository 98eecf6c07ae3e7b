"""Weight copies: one encoder and head per task, stacked, in any dtype and on any device."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from mmb.auc.compositional.copies_memory import Footprint
from mmb.auc.compositional.host_rows import HostRows
from mmb.models.multitask import MultiTask, as_multitask

StorageDtype = Literal["float64", "float32", "float16", "bfloat16"]
Kept = Literal["weights", "offsets", "none"]


class WeightCopies(nn.Module):
    """A copy `u_i` of (encoder, head i) for every task, or its offset, as one row of a matrix `[m, P]`.

    A row holds the trainable parameters of the encoder in order, then the head's weight and bias. Matrices
    are stored transposed, because that is how batched products give the gradients of linear layers. With a
    dtype or device of None, storage follows the model and `.to()`; else it stays as chosen. With
    `kept="none"` there are no rows, only what a row would be.
    """

    stacked: Tensor  # call `wait` before reading it, if it is in host memory and a GPU computes with it

    def __init__(
        self,
        model: MultiTask,
        dtype: StorageDtype | torch.dtype | None = None,
        device: torch.device | str | None = None,
        kept: Kept = "weights",
    ) -> None:
        super().__init__()
        self.kept = kept
        self.names, self.shapes = _copied(model)
        self.num_tasks = len(model.weight)
        size = self.measure(model, dtype, device, kept)
        size.check()
        self.fixed_dtype = None if dtype is None else size.dtype
        self.fixed_device = None if device is None else size.device
        stacked = torch.empty(size.rows, size.width, dtype=size.dtype, device=size.device)
        self.register_buffer("stacked", stacked, persistent=kept != "none")
        self._host: HostRows | None = None
        self.reset(model)

    @staticmethod
    def measure(
        model: MultiTask,
        dtype: StorageDtype | torch.dtype | None = None,
        device: torch.device | str | None = None,
        kept: Kept = "weights",
    ) -> Footprint:
        """What copies of a model would need in memory; nothing is allocated."""
        _, shapes = _copied(model)
        found = getattr(torch, dtype) if isinstance(dtype, str) else dtype
        return Footprint(
            rows=0 if kept == "none" else len(model.weight),
            width=sum(shape.numel() for shape in shapes),
            dtype=found or model.weight.dtype,
            device=model.weight.device if device is None else torch.device(device),
        )

    @property
    def footprint(self) -> Footprint:
        """What these copies take in memory."""
        rows, width = self.stacked.shape
        return Footprint(rows, width, self.stacked.dtype, self.stacked.device)

    @torch.no_grad()
    def reset(self, model: MultiTask) -> None:
        """Put every copy at the model's current weights."""
        self.wait()
        if self.kept != "weights":
            self.stacked.zero_()
            return
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

    def prefetch(self, tasks: Tensor, device: torch.device) -> None:
        """Start bringing copies in host memory to a device, for a later `gather` of the same tasks `[k]`."""
        if self.stacked.device.type == "cpu":
            self._rows_for(device).prefetch(tasks.cpu())

    def gather(self, tasks: Tensor | None, like: Tensor) -> Tensor:
        """The copies of the tasks (None is all), `[k, P]`, in the dtype and on the device of `like`."""
        if tasks is None or self.kept == "none":
            self.wait()
            rows = self.stacked.clone()
        elif self.stacked.device.type == "cpu":
            rows = self._rows_for(like.device).gather(tasks.cpu())
        else:
            rows = self.stacked.index_select(0, tasks.to(self.stacked.device, non_blocking=True))
        return rows.to(like.device).to(like.dtype)

    def scatter_(self, tasks: Tensor | None, rows: Tensor) -> None:
        """Write the copies of the tasks back; all others stay bit-identical."""
        if tasks is None:
            self.wait()
            self.stacked.copy_(rows)
        elif self.stacked.device.type == "cpu":
            self._rows_for(rows.device).scatter_(tasks.cpu(), rows)
        else:
            rows = rows.to(self.stacked.device, self.stacked.dtype)
            self.stacked.index_copy_(0, tasks.to(self.stacked.device, non_blocking=True), rows)

    def wait(self) -> None:
        """Wait until everything written is in `stacked`."""
        if self._host is not None:
            self._host.wait()

    def split(self, rows: Tensor) -> list[Tensor]:
        """The parameters in rows `[k, P]`, as views `[k, ...]`."""
        parts = torch.split(rows, [shape.numel() for shape in self.shapes], dim=1)
        return [
            part.view(-1, *shape[::-1]).mT if len(shape) == 2 else part.view(-1, *shape)
            for part, shape in zip(parts, self.shapes, strict=True)
        ]

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Rows `[k, P]` of the parameters in parts `[k, ...]`: the inverse of `split`, in new memory."""
        stored = [part.mT if part.dim() == 3 else part for part in parts]
        return torch.cat([part.reshape(len(part), -1) for part in stored], dim=1)

    def check(self, model: nn.Module) -> MultiTask:
        """Return the model if it has the parameters of the one that the copies were made from."""
        model = as_multitask(model, self.num_tasks)
        known = dict(model.encoder.named_parameters())
        shapes = [known[name].shape for name in self.names if name in known]
        if [*shapes, model.weight.shape[1:], model.bias.shape[1:]] != self.shapes:
            raise ValueError("model: its parameters have other shapes than those the copies were made from")
        return model

    def _rows_for(self, device: torch.device) -> HostRows:
        if self._host is None or self._host.matrix is not self.stacked or self._host.device != device:
            self.wait()
            self._host = HostRows(self.stacked, device)
        return self._host

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # `.to()`, `.cuda()`, `.double()` call this. A chosen dtype or device stays, and is not even changed
        # and changed back: that might not fit.
        self.wait()
        probe = fn(self.stacked.new_empty(0))
        self.stacked = self.stacked.to(self.fixed_device or probe.device, self.fixed_dtype or probe.dtype)
        return self

    def _save_to_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.wait()
        super()._save_to_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.wait()
        super()._load_from_state_dict(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        self.wait()
        return {**self.__dict__, "_host": None}  # a stream cannot be copied


def _copied(model: MultiTask) -> tuple[list[str], list[torch.Size]]:
    """Names of the encoder's parameters that are copied, and the shapes of these and of a head."""
    model = as_multitask(model)
    shared = {name: weight for name, weight in model.encoder.named_parameters() if weight.requires_grad}
    dtypes = {weight.dtype for weight in (*shared.values(), model.weight, model.bias)}
    if len(dtypes) > 1:
        raise TypeError(f"model: expected trainable parameters of one dtype, got {dtypes}")
    shapes = [weight.shape for weight in shared.values()]
    return list(shared), [*shapes, model.weight.shape[1:], model.bias.shape[1:]]
