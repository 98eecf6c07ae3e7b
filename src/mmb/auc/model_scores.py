"""What a model gives for a batch: logits of all tasks, or of those that were sampled."""

from typing import Any, cast

from torch import Tensor, nn

from mmb.auc.batches import Batch
from mmb.auc.parts.weighted_scores import check_tasks
from mmb.models.multitask import flatten_tasks
from mmb.models.outputs import logits_of


def model_scores(model: nn.Module, batch: Batch, num_tasks: int) -> Tensor:
    """Logits of a batch: `[n, m]`, or `[k, r]` of the sampled tasks."""
    if batch.tasks is None:
        return logits_of(model(batch.inputs))
    check_tasks(batch.tasks, num_tasks)
    own: Any = getattr(model, "task_scores", None)
    if own is not None:
        heads = getattr(model, "num_tasks", num_tasks)
        if heads != num_tasks:
            raise ValueError(f"model has {heads} heads but the objective has {num_tasks} tasks")
        return cast(Tensor, own(batch.inputs, batch.tasks))
    scores = logits_of(model(flatten_tasks(batch.inputs)))
    if scores.dim() != 2 or scores.shape[1] != num_tasks:
        raise ValueError(
            f"model output has shape {tuple(scores.shape)} but the objective has {num_tasks} tasks: "
            f"expected [rows, {num_tasks}]"
        )
    every = scores.reshape(batch.tasks.numel(), -1, num_tasks)  # [k, r, m]
    return every.gather(2, batch.tasks.reshape(-1, 1, 1).expand(-1, every.shape[1], 1)).squeeze(2)
