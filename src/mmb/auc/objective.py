"""The interface every objective implements, and the one step they all share: from a batch to entries."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mmb.auc.batches import Batch, TaskBatch
from mmb.auc.labels import Labels
from mmb.auc.parts.autograd import Gradients, with_gradient
from mmb.auc.parts.weighted_scores import WeightedScores, check_fed
from mmb.label_values import MISSING
from mmb.models.multitask import flatten_tasks


class Objective(nn.Module):
    r"""What to train for: fills `.grad` and keeps the state of its blocks (tasks).

    The estimate for the model and the objective's own parameters is

    $$
    \Delta = \frac1{|I|} \sum_{k \in I} \omega_k \Delta_k,
    \qquad \omega_k \propto (\text{positive rate of } k)^{-g}
    $$

    over the batch's tasks `I`, task weights normalised to mean one over the usable tasks. Dense batches
    contain all usable tasks; their entries are weighted by class rates, so that the estimate stays unbiased.

    In training mode a call also moves the block state (dual variables, thresholds) of the sampled tasks, as
    batch normalisation does; in `eval()` mode state is left alone.

    Args:
        labels: The training labels: a [`Labels`][mmb.auc.labels.Labels], or a matrix to make one from.
        task_weighting: `g` in [-1, 1]; zero weighs tasks equally, a positive `g` gives rare tasks more
            weight, a negative one common tasks. Objectives that average over each class on its own, such
            as those for AUC, already give a rare task's few positives as much weight as a common task's
            many, and its estimate is the noisier: there a negative `g` can help.

    Raises:
        ValueError: If `task_weighting` is outside [-1, 1].
    """

    task_weight: Tensor
    positives: Tensor
    negatives: Tensor

    def __init__(self, labels: Labels | Tensor, task_weighting: float = 0.0) -> None:
        super().__init__()
        if not -1 <= task_weighting <= 1:
            raise ValueError(
                f"task_weighting must be in [-1, 1], got {task_weighting}: positive numbers give rare tasks "
                "more weight, negative ones common tasks"
            )
        labels = labels if isinstance(labels, Labels) else Labels(labels)
        self.num_rows, self.num_tasks = labels.num_rows, labels.num_tasks
        self.num_usable = labels.num_usable
        dtype = torch.get_default_dtype()
        for name, value in {  # not persistent: they follow from the labels, not from training
            "task_weight": labels.task_weights(task_weighting),
            "positives": labels.positives.clamp(min=1),  # counts, exact in any precision we compute in
            "negatives": labels.negatives.clamp(min=1),
        }.items():
            self.register_buffer(name, value.to(dtype), persistent=False)

    def loss(self, entries: WeightedScores) -> Tensor:
        """The loss of one batch, its gradient the estimate; moves block state when `self.training`.

        An objective implements this with plain autograd, or `estimate` in closed form.
        """
        with torch.no_grad():
            value, gradients = self.estimate(entries)
        return with_gradient(value, gradients)

    def estimate(self, entries: WeightedScores) -> tuple[Tensor, Gradients]:
        """The value of the loss and its derivatives; moves block state when `self.training`."""
        raise NotImplementedError(f"{type(self).__name__} implements neither loss nor estimate")

    def memory_bytes(self) -> int:
        """Size of the state, of which all but a few numbers is that of blocks: duals, thresholds, copies."""
        return sum(state.numel() * state.element_size() for state in self.state_dict().values())

    def task_mean(self, values: Tensor) -> Tensor:
        """Mean over the tasks that are trained, of one value `[m]` for each; zero if none is."""
        trained = self.task_weight > 0
        return torch.where(trained, values, 0.0).sum() / trained.sum().clamp(min=1)

    def diagnostics(self) -> dict[str, Tensor]:
        """Numbers that tell whether training works, from the state alone: scalars on the state's device."""
        return {}

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        tasks: Tensor | None = None,
        weights: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch; differentiate it for the estimate.

        Args:
            scores: Raw logits: `[n, m]` (`[n]` will do for one task), or `[k, r]` with `tasks`.
            labels: Same shape (`[n]` will do, too): 0, 1, or missing (NaN in floating point, -1 in integers).
            tasks: int64 `[k]`: the batch is task-sampled; None: it is dense.
            weights: Dense: importance of each label `[n, m]` or row `[n]`. With `tasks`: importance of
                each task `[k]`.
            rows: Index of each row in the data, `[n]` or `[k, r]`; for objectives with a variable per
                positive.

        Returns:
            A scalar: the mean over the batch's tasks of task weight times loss.

        Raises:
            TypeError: See [`check_fed`][mmb.auc.parts.weighted_scores.check_fed].
            ValueError: Likewise; no state has changed then.
        """
        return self.loss(self.entries(scores, labels, tasks, weights, rows))

    def backward(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Add the estimate to `.grad` of the model's and the objective's parameters, and move block state.

        Args:
            model: Maps inputs to logits `[n, m]`. If it has `task_scores(inputs, tasks)`, task-sampled
                batches compute the sampled heads alone.
            batch: A [`TaskBatch`][mmb.auc.batches.TaskBatch] or [`DenseBatch`][mmb.auc.batches.DenseBatch].

        Returns:
            Detached numbers worth logging, left on the device; `"loss"` is always among them.
        """
        scores = model_scores(model, batch, self.num_tasks)
        tasks = batch.tasks if isinstance(batch, TaskBatch) else None
        loss: Tensor = self(scores, batch.labels, tasks, batch.weights, batch.rows)
        loss.backward()  # type: ignore[no-untyped-call]
        return {"loss": loss.detach(), **self.diagnostics()}

    def entries(
        self,
        scores: Tensor,
        labels: Tensor,
        tasks: Tensor | None = None,
        weights: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> WeightedScores:
        """Check what was fed and weigh its entries; arguments as in `forward`."""
        if self.num_tasks == 1 and tasks is None:
            scores, labels = (part.unsqueeze(1) if part.dim() == 1 else part for part in (scores, labels))
        check_fed(scores, labels, tasks, weights, rows, self.num_tasks)
        scores = scores.to(torch.promote_types(scores.dtype, self.task_weight.dtype))
        # arithmetic instead of comparisons: on a CPU several times faster
        signs = labels.to(scores.dtype)
        signs = signs.nan_to_num(nan=float(MISSING)) if labels.is_floating_point() else signs
        positive, negative = signs.clamp(min=0), 1 - signs * signs
        if tasks is None:
            # importance / (n * rate), with rate = count / N
            per_row = self.num_rows / labels.shape[0]
            positive, negative = positive * (per_row / self.positives), negative * (per_row / self.negatives)
            if weights is not None:
                weights = weights.unsqueeze(1) if weights.dim() == 1 else weights
                positive, negative = positive * weights, negative * weights
            task_weight, count = self.task_weight, self.num_usable
            rows = None if rows is None else rows.unsqueeze(1)
        else:
            scores, rows = scores.T, None if rows is None else rows.T
            positive, negative = (kind.T / kind.sum(1).clamp(min=1) for kind in (positive, negative))
            task_weight, count = self.task_weight.index_select(0, tasks), tasks.numel()
            task_weight = task_weight if weights is None else task_weight * weights
        negative_mass = negative.sum(0)
        sampled = (positive.sum(0) + negative_mass > 0) & (task_weight > 0)
        scale = torch.where(sampled, task_weight / count, 0.0)
        return WeightedScores(scores, positive, negative, negative_mass, scale, sampled, tasks, rows)


def model_scores(model: nn.Module, batch: Batch, num_tasks: int) -> Tensor:
    """Logits of a batch: `[n, m]`, or `[k, r]` of the sampled tasks.

    Raises:
        ValueError: If the model has another number of outputs than there are tasks.
    """
    scores: Tensor
    if not isinstance(batch, TaskBatch):
        scores = model(batch.inputs)
        return scores
    own: Any = getattr(model, "task_scores", None)
    if own is not None:
        heads = getattr(model, "num_tasks", num_tasks)
        if heads != num_tasks:
            raise ValueError(f"model has {heads} heads but the objective has {num_tasks} tasks")
        scores = own(batch.inputs, batch.tasks)
        return scores
    scores = model(flatten_tasks(batch.inputs))
    if scores.dim() != 2 or scores.shape[1] != num_tasks:
        raise ValueError(
            f"model output has shape {tuple(scores.shape)} but the objective has {num_tasks} tasks: "
            f"expected [rows, {num_tasks}]"
        )
    every = scores.reshape(batch.tasks.numel(), -1, num_tasks)  # [k, r, m]
    return every.gather(2, batch.tasks.reshape(-1, 1, 1).expand(-1, every.shape[1], 1)).squeeze(2)
