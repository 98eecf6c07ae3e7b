"""An encoder shared by all tasks, and one linear head per task."""

import math
from typing import Any

import torch
from torch import Tensor, nn


class MultiTask(nn.Module):
    """Logits `encoder(x) @ weight.T + bias`, for all tasks or only for the sampled ones.

    Args:
        encoder: Maps the inputs of `n` rows to features `[n, num_features]`.
        num_features: Width of the encoder's output.
        num_tasks: Number of heads `m`.

    Raises:
        ValueError: If `num_features` or `num_tasks` is not positive.
    """

    def __init__(self, encoder: nn.Module, num_features: int, num_tasks: int) -> None:
        super().__init__()
        if num_features < 1 or num_tasks < 1:
            raise ValueError(
                f"num_features and num_tasks must be positive, got {num_features} and {num_tasks}"
            )
        self.encoder = encoder
        bound = 1 / math.sqrt(num_features)  # as in torch.nn.Linear
        self.weight = nn.Parameter(torch.empty(num_tasks, num_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(num_tasks))

    @property
    def num_tasks(self) -> int:
        """Number of heads."""
        return self.weight.shape[0]

    def forward(self, inputs: Any, tasks: Tensor | None = None) -> Tensor:
        """Logits of every task, or of each task's own rows.

        Args:
            inputs: The encoder's input for `n` rows; with `tasks`, leading axes `[k, r]` (see
                `mmb.auc.TaskBatch`).
            tasks: int64 `[k]`: compute only these heads, each on its own rows.

        Returns:
            `[n, m]`, or `[k, r]` with `tasks`.
        """
        if tasks is None:
            return nn.functional.linear(self.encoder(inputs), self.weight, self.bias)
        features = self.encoder(flatten_tasks(inputs))
        features = features.reshape(tasks.numel(), -1, self.weight.shape[1])  # [k, r, d]
        heads = self.weight.index_select(0, tasks).unsqueeze(2)  # [k, d, 1]
        return torch.bmm(features, heads).squeeze(2) + self.bias.index_select(0, tasks).unsqueeze(1)

    def task_scores(self, inputs: Any, tasks: Tensor) -> Tensor:
        """Logits `[k, r]` of the sampled tasks on their own rows: cost does not grow with `m`."""
        return self(inputs, tasks)


def as_multitask(model: nn.Module, num_tasks: int | None = None) -> MultiTask:
    """The model, without the wrapper of `torch.compile`: a `MultiTask` with `num_tasks` heads."""
    found: Any = getattr(model, "_orig_mod", model)
    if not isinstance(found, MultiTask):
        raise TypeError(
            f"model: expected an mmb.models.MultiTask (an encoder and one head per task), got "
            f"{type(model).__name__}; wrap your network without its last layer: "
            "MultiTask(encoder, num_features, num_tasks)"
        )
    if num_tasks is not None and found.num_tasks != num_tasks:
        raise ValueError(f"model has {found.num_tasks} heads but the objective has {num_tasks} tasks")
    return found


def flatten_tasks(inputs: Any) -> Any:
    """Join the axes `[k, r]` of tensors, nests of them, or objects with `flatten_tasks()` into `[k * r]`."""
    if isinstance(inputs, Tensor):
        return inputs.flatten(0, 1)
    if hasattr(inputs, "flatten_tasks"):
        return inputs.flatten_tasks()
    if isinstance(inputs, dict):
        return {key: flatten_tasks(value) for key, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return type(inputs)(flatten_tasks(value) for value in inputs)
    raise TypeError(
        f"task-sampled inputs must be tensors with leading axes [tasks, rows], a nest of them, or an object "
        f"with flatten_tasks(); got {type(inputs).__name__}"
    )
