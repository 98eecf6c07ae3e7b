"""What an objective works on, for both kinds of batches: scores [rows, tasks], two weights per entry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from mmb.auc.parts.autograd import keep
from mmb.label_values import check_values


@dataclass(frozen=True)
class WeightedScores:
    """Scores with class weights, so that `(positive * phi).sum(0)` estimates `E+[phi]` per task.

    Attributes:
        logits: `[rows, k]`, differentiable.
        positive: `[rows, k]` weights of the positive entries, zero elsewhere; their sum over the rows is
            one (task-sampled) or one in expectation (dense).
        negative: The same for the negative entries.
        negative_mass: `[k]`: the sum of `negative` over the rows.
        scale: `[k]`: the share of each task in the estimate: task weight over the number of tasks, zero for
            tasks that are not sampled.
        sampled: bool `[k]`: usable tasks with at least one label in the batch. The state of all others
            stays bit-identical.
        tasks: int64 `[k]`, or None if the columns are all tasks in order.
        rows: int64 `[rows, k]` or `[rows, 1]`, or None.
        broken: bool scalar: whether the batch has bad values, so that none of its tasks count as sampled;
            None where that is known to be false.
    """

    logits: Tensor
    positive: Tensor
    negative: Tensor
    negative_mass: Tensor
    scale: Tensor
    sampled: Tensor
    tasks: Tensor | None
    rows: Tensor | None
    broken: Tensor | None = None

    def flag(self, value: Tensor) -> Tensor:
        """The value of a loss, or NaN if the batch is broken: it will be seen when it is logged."""
        return value if self.broken is None else torch.where(self.broken, torch.nan, value)

    def together(self, other: WeightedScores) -> WeightedScores:
        """These entries, broken if the others of the same tasks are."""
        if other.broken is None:
            return self
        broken = other.broken if self.broken is None else self.broken | other.broken
        return replace(
            self,
            sampled=self.sampled & ~broken,
            scale=torch.where(broken, 0.0, self.scale),
            broken=broken,
        )

    def gather(self, state: Tensor) -> Tensor:
        """A detached copy of the state of the tasks here, `[k, ...]` out of `[m, ...]`, in logits' dtype."""
        state = state.detach() if state.requires_grad else state
        found = state if self.tasks is None else state.index_select(0, self.tasks)
        found = found.to(self.logits.dtype)
        if torch.compiler.is_compiling():  # or the backward pass would read state that has moved
            return cast(Tensor, keep(found))
        return found.clone() if self.tasks is None else found

    def scatter_(self, state: Tensor, new: Tensor) -> None:
        """Write the new state `[k, ...]` of the sampled tasks; that of other tasks does not change.

        What is not finite is not written.
        """
        new = new.to(state.dtype)
        sampled = self.sampled if new.dim() == 1 else self.sampled.reshape(-1, *(1,) * (new.dim() - 1))
        sampled = sampled & (new - new).logical_not()  # NaN, not zero, for what is not finite
        if self.tasks is None:
            torch.where(sampled, new, state, out=state)
        else:
            old = state.index_select(0, self.tasks)
            state.index_copy_(0, self.tasks, torch.where(sampled, new, old))

    def averaged(self) -> WeightedScores:
        """The same with weights that sum to one over these rows; NaN if a task lacks the class."""
        positive = self.positive / self.positive.sum(0)
        negative = self.negative / self.negative_mass
        return replace(self, positive=positive, negative=negative, negative_mass=negative.sum(0))

    def mirrored(self) -> WeightedScores:
        """The same ranking problem seen from the positives: scores negated, classes exchanged."""
        return replace(
            self,
            logits=-self.logits,
            positive=self.negative,
            negative=self.positive,
            negative_mass=self.positive.sum(0),
        )

    def spread(self, values: Tensor, num_tasks: int) -> Tensor:
        """Put values `[k]` of the batch's tasks in their places of `[m]`, zero elsewhere."""
        if self.tasks is None:
            return values
        return values.new_zeros(num_tasks).index_copy_(0, self.tasks, values)


def check_tasks(tasks: Tensor, num_tasks: int) -> None:
    """Refuse task numbers that are not int64, unknown or repeated (values are checked on the CPU only)."""
    if tasks.dtype != torch.int64:
        raise TypeError(f"tasks: expected int64, got {tasks.dtype}; use tasks.long()")
    if tasks.dim() != 1 or tasks.numel() == 0:
        raise ValueError(f"tasks: expected the numbers of the batch's tasks, [k], got {tuple(tasks.shape)}")
    if tasks.device.type != "cpu" or torch.compiler.is_compiling():
        return
    ordered = tasks.sort().values
    if ordered[0] < 0 or ordered[-1] >= num_tasks:
        bad = int(ordered[0] if ordered[0] < 0 else ordered[-1])
        raise ValueError(f"tasks: unknown task {bad}; the objective has tasks 0 to {num_tasks - 1}")
    if bool((ordered[1:] == ordered[:-1]).any()):
        raise ValueError(f"tasks: expected each task at most once, got {tasks.tolist()}")


def check_tensors(**given: Any) -> None:
    """Refuse what is not a tensor, by name; None is absent."""
    for name, one in given.items():
        if one is not None and not isinstance(one, Tensor):
            raise TypeError(
                f"{name}: expected a torch.Tensor, got {type(one).__name__}; use torch.as_tensor(...)"
            )


def check_fed(
    scores: Tensor,
    labels: Tensor,
    tasks: Tensor | None,
    weights: Tensor | None,
    rows: Tensor | None,
    num_tasks: int,
) -> None:
    """Refuse a batch that does not fit together, before anything is computed or changed.

    Values (labels, task numbers) are checked on the CPU only: on a GPU that would make every step wait. There
    `Labels` checks them when the data is built, and indexing refuses unknown tasks.
    """
    if not scores.is_floating_point():
        raise TypeError(f"scores must be floating point logits, got {scores.dtype}")
    if scores.dim() != 2 or scores.shape != labels.shape:
        raise ValueError(
            f"scores and labels must have the same shape, [rows, tasks] or, with tasks given, [tasks, rows]; "
            f"got scores {tuple(scores.shape)} and labels {tuple(labels.shape)}"
        )
    for name, given in (("labels", labels), ("weights", weights)):
        if given is not None and given.requires_grad:
            raise ValueError(f"{name}: expected data, got a tensor that requires gradients; use .detach()")
    if weights is not None and weights.is_complex():
        raise TypeError(f"weights: expected real numbers, got {weights.dtype}")
    if scores.numel() == 0:
        raise ValueError(f"the batch is empty: scores have shape {tuple(scores.shape)}")
    if tasks is None and scores.shape[1] != num_tasks:
        raise ValueError(
            f"model output has {scores.shape[1]} columns but the objective has {num_tasks} tasks; "
            f"give the model {num_tasks} heads, or name the tasks of each row of scores with tasks="
        )
    if tasks is not None:
        check_tasks(tasks, num_tasks)
        _check_index("tasks", tasks, scores.shape[:1])
    weight_shapes = (scores.shape[:1],) if tasks is not None else (scores.shape, scores.shape[:1])
    if weights is not None and weights.shape not in weight_shapes:
        raise ValueError(
            f"weights must be {' or '.join(str(tuple(s)) for s in weight_shapes)} with scores "
            f"{tuple(scores.shape)}{' and tasks' if tasks is not None else ''}; got {tuple(weights.shape)}"
        )
    if rows is not None:
        _check_index("rows", rows, scores.shape[:1] if tasks is None else scores.shape)
    if scores.device.type == "cpu" and not torch.compiler.is_compiling():
        check_values(labels)


def _check_index(name: str, index: Tensor, shape: torch.Size) -> None:
    if index.dtype != torch.int64:
        raise TypeError(f"{name}: expected int64, got {index.dtype}")
    if index.shape != shape:
        raise ValueError(f"{name}: expected shape {tuple(shape)} with these scores, got {tuple(index.shape)}")
