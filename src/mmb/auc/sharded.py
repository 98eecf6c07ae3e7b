"""Any objective divided among processes: each keeps the state of its tasks, and gradients are summed."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, NoReturn, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from mmb.auc.batches import Batch, DenseBatch, TaskBatch
from mmb.auc.labels import Labels
from mmb.auc.model_scores import model_scores
from mmb.auc.objective import Objective, Part
from mmb.auc.parts.tracked_thresholds import ThresholdReport
from mmb.auc.sampling import TaskDraw
from mmb.distributed import Shard, gather_rows, rows_to_blocks, sum_gradients
from mmb.models.multitask import MultiTask, as_multitask
from mmb.trees import tree_map

_NEW_NAME = "forward_sync_buffers"  # in newer versions of torch
_BUFFERS_APART: dict[str, Any] = {
    _NEW_NAME if _NEW_NAME in signature(DistributedDataParallel).parameters else "broadcast_buffers": False
}


@dataclass(frozen=True)
class SharedTaskBatch(TaskBatch):
    """One process's share of a task-sampled batch."""

    all_tasks: Tensor | None = None  # int64: the tasks of the whole batch, whose heads' gradients are summed


@dataclass(frozen=True)
class SharedTaskDraw(TaskDraw):
    """One process's share of a draw; `all_tasks` as in `SharedTaskBatch`."""

    all_tasks: Tensor | None = None

    def with_inputs(self, inputs: Any, lower_inputs: Any = None) -> SharedTaskBatch:
        """The batch, from the model input of these rows and of those for the lower level."""
        return SharedTaskBatch(**vars(super().with_inputs(inputs, lower_inputs)), all_tasks=self.all_tasks)


class ShardedObjective(Objective):
    r"""An objective whose tasks are divided among the processes of a group.

    Every process draws the same batches and works on its `share` of each. `backward` leaves the estimate of
    the whole batch in `.grad` of the model, the same on every process and for any number of processes. Block
    state, and the objective's own parameters with their gradients, exist only for the tasks of this process:
    `m / N` of them.

    - Task-sampled batches: a process takes the sampled tasks that it owns (or none), and the gradients are
      summed with one all-reduce, of the size of the encoder and the heads of all sampled tasks for any `m`
      (of the size of the model, if it is not a [`MultiTask`][mmb.models.multitask.MultiTask]).
    - Dense batches: a process evaluates the model on its part of the rows. An objective with a term for
      each entry (cross-entropy, focal) needs nothing else; all others need all rows of a task at once,
      so that logits `[n/N, m]` are exchanged for `[n, m/N]`, and derivatives back. Gradients are summed in
      buckets during backward (`DistributedDataParallel`).
    - Compositional training evaluates each task with its own weights: with dense batches, a process
      evaluates all rows, for its own tasks. Gradients are summed with one all-reduce.

    Batch normalization uses the statistics of the rows that a process evaluates;
    `average_running_statistics` makes the running ones the same everywhere. Gradients must be zero or None
    before `backward`, since it sums them over processes.

    Args:
        labels: The training labels of all tasks.
        make: Makes the objective from the labels of some tasks. Compositional training takes the model
            with [`owned_heads`][mmb.auc.sharded.owned_heads].
        group: The process group; None is the default group.

    Attributes:
        inner: The objective of the tasks of this process (of all tasks, if it has no state).
        shard: The tasks of this process.
        rows_seen: Rows evaluated since running statistics were averaged.
    """

    def __init__(
        self,
        labels: Labels | Tensor,
        make: Callable[[Labels], Objective],
        group: dist.ProcessGroup | None = None,
    ) -> None:
        nn.Module.__init__(self)  # `inner` has what Objective.__init__ makes of the labels
        labels = labels if isinstance(labels, Labels) else Labels(labels)
        self.num_rows, self.num_tasks, self.num_usable = labels.num_rows, labels.num_tasks, labels.num_usable
        self.shard = Shard.of_this_process(labels.num_tasks, group)
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.inner = make(labels.columns(self.shard.start, self.shard.stop))
        if self.inner.by_entry:
            self.inner = make(labels)
        self.inner.can_raise = False
        self.by_entry, self.evaluates_model = self.inner.by_entry, self.inner.evaluates_model
        self.weights_per_task = self.inner.weights_per_task
        for name, parameter in self.inner.named_parameters():
            if parameter.dim() == 0 or len(parameter) != len(self.shard):
                raise ValueError(
                    f"{name}: expected a parameter with a leading axis of {len(self.shard)} tasks, "
                    f"got shape {tuple(parameter.shape)}; what tasks share belongs in the model"
                )
        for name in self.inner.shared_state():
            raise ValueError(
                f"{name} of {type(self.inner).__name__} belongs to no task and cannot be divided among "
                "processes: train with one"
            )
        self._share = int((self.inner.task_weight > 0).sum()) / labels.num_usable
        self.rows_seen = 0
        self._parallel: list[DistributedDataParallel] = []  # in a list, so that it is not a submodule

    def share(self, part: Part) -> Part:
        """This process's share of a draw or a batch (of tensors or a nest of them) that all processes have.

        Of tasks it takes those it owns, or an even part if the objective has no state. Its `weights` make the
        estimates of all shares add up. Rows keep their labels; only inputs are divided (`input_rows`).
        """
        shared: Any = part
        if isinstance(part, DenseBatch):
            here = self.input_rows(len(part.labels))
            shared = replace(part, inputs=tree_map(lambda leaf: leaf[here], part.inputs))
        elif isinstance(part, TaskBatch | TaskDraw):
            keep, weights = self._tasks_here(part.tasks, part.weights)
            kind = SharedTaskBatch if isinstance(part, TaskBatch) else SharedTaskDraw
            chosen = vars(_choose(part, keep)) | {"weights": weights}
            shared = kind(**chosen, all_tasks=part.tasks)
        return cast(Part, shared)

    def _tasks_here(self, tasks: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Places of this process's tasks among all sampled ones, and their importance."""
        if self.by_entry:
            keep = torch.arange(len(tasks), device=tasks.device)[self.rank :: self.size]
        else:
            keep = ((tasks >= self.shard.start) & (tasks < self.shard.stop)).nonzero().squeeze(1)
        own = torch.ones(len(keep), dtype=self.inner.task_weight.dtype, device=tasks.device)
        own = own if weights is None else weights[keep].to(own.dtype)
        return keep, own * (len(keep) / len(tasks))

    def input_rows(self, num_rows: int) -> slice:
        """Which rows of a dense batch this process evaluates: at least one, since models need a row."""
        if self.evaluates_model:
            return slice(0, num_rows)
        sizes = self._divided(num_rows)
        start = sum(sizes[: self.rank])
        return slice(start, start + sizes[self.rank]) if sizes[self.rank] else slice(0, min(2, num_rows))

    def prefetch(self, tasks: Tensor) -> None:
        """Start bringing the state of the next share's tasks to the device."""
        if len(tasks):
            self.inner.prefetch(self._local(tasks))

    def forward(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise TypeError: gradients must be summed after the model's backward."""
        raise TypeError("ShardedObjective sums gradients over processes: call backward(model, batch)")

    def backward(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Fill `.grad` with the estimate of all processes, from the `share` of this one; move its state."""
        if isinstance(batch, DenseBatch) and not self.evaluates_model:
            return self._dense(model, batch)
        loss: Tensor | None = None
        if len(self.shard if batch.tasks is None else batch.tasks):
            self.rows_seen += batch.labels.numel() if isinstance(batch, TaskBatch) else len(batch.labels)
            loss = self._apart(model, batch) if self.evaluates_model else self._sampled(model, batch)
        for parameter in self.inner.parameters():  # zeros, as for tasks that are not sampled
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        names, numbers = self._numbers(loss)
        weights = [p for p in model.parameters() if p.requires_grad]
        sampled = batch.all_tasks if isinstance(batch, SharedTaskBatch) else None
        heads = [model.weight, model.bias] if isinstance(model, MultiTask) and sampled is not None else []
        sampled = None if sampled is None else sampled.to(numbers.device, non_blocking=True)
        summed = sum_gradients(weights, numbers, self.shard.group, heads, sampled)
        return dict(zip(names, summed.unbind(), strict=True))

    def _sampled(self, model: nn.Module, batch: Batch) -> Tensor:
        """Gradients of the sampled tasks of this process; returns its part of the loss."""
        assert isinstance(batch, TaskBatch)
        scores = model_scores(model, batch, self.num_tasks)
        loss: Tensor = self.inner(scores, batch.labels, self._local(batch.tasks), batch.weights, batch.rows)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _apart(self, model: nn.Module, batch: Batch) -> Tensor:
        """The same for an objective that evaluates the model itself, with weights of each task."""
        part = owned_heads(model, self.shard)
        loss = self.inner.backward(part, self._own(batch))["loss"]
        for name, own in part.named_parameters(recurse=False):
            whole = model.get_parameter(name)
            whole.grad = torch.zeros_like(whole) if whole.grad is None else whole.grad
            if own.grad is not None:
                self.shard.take(whole.grad).add_(own.grad)
        return loss

    def _own(self, batch: Batch) -> Batch:
        """The batch as the inner objective counts its tasks."""
        if isinstance(batch, TaskBatch):
            lower = batch.lower and replace(batch.lower, tasks=self._local(batch.lower.tasks))
            return replace(batch, tasks=self._local(batch.tasks), lower=lower)
        return replace(batch, labels=self._columns(batch.labels), weights=self._columns(batch.weights))

    def _dense(self, model: nn.Module, batch: DenseBatch) -> dict[str, Tensor]:
        """Rows divided for the model, tasks for the objective."""
        count, sizes = len(batch.labels), self._divided(len(batch.labels))
        mine, start = sizes[self.rank], sum(sizes[: self.rank])
        logits = self._network(model)(batch.inputs)[:mine]
        logits = logits.unsqueeze(1) if logits.dim() == 1 else logits
        if logits.shape[1] != self.num_tasks:
            raise ValueError(
                f"model output has {logits.shape[1]} columns but the objective has {self.num_tasks} tasks"
            )
        self.rows_seen += mine
        labels, weights, rows = batch.labels, batch.weights, batch.rows
        if self.by_entry:
            here = slice(start, start + mine)
            weights = torch.ones_like(labels[:, 0]) if weights is None else weights
            labels, weights = labels[here], weights[here].to(self.inner.task_weight.dtype) * (mine / count)
            rows = None if rows is None else rows[here]
        else:
            logits = rows_to_blocks(logits, sizes, self.shard.sizes(), self.shard.group)
            labels, weights = self._columns(labels), self._columns(weights)
        found = self.inner(logits, labels, None, weights, rows) if logits.numel() else None
        loss = logits.sum() if found is None else found
        names, numbers = self._numbers(found)
        summing = dist.all_reduce(numbers, group=self.shard.group, async_op=True)
        loss.backward()
        summing.wait()
        return dict(zip(names, numbers.unbind(), strict=True))

    def _numbers(self, loss: Tensor | None) -> tuple[list[str], Tensor]:
        """Names of the logged numbers and this process's part of them: its losses, and means over tasks.

        The loss is None if there is nothing to do for this process.
        """
        dtype = self.inner.task_weight.dtype
        zero = self.inner.task_weight.new_zeros(())
        losses = {"loss": zero if loss is None else loss.detach(), **self.inner.loss_parts()}
        losses = {name: zero if loss is None else value for name, value in losses.items()}
        means = self.inner.diagnostics()
        shares = [value * self._share if self._share else torch.zeros_like(value) for value in means.values()]
        numbers = [value.to(dtype) for value in (*losses.values(), *shares)]
        return [*losses, *means], torch.stack(numbers)

    def _divided(self, num_rows: int) -> list[int]:
        """Rows of a dense batch for each process; never a single one, which cannot be normalized."""
        parts = max(1, min(self.size, num_rows // 2))
        sizes = [num_rows // parts + (rank < num_rows % parts) for rank in range(parts)]
        return sizes + [0] * (self.size - parts)

    def _local(self, tasks: Tensor) -> Tensor:
        """The tasks as `inner` counts them."""
        return tasks if self.by_entry else tasks - self.shard.start

    def _columns(self, values: Any) -> Any:
        """The columns of the tasks of `inner`, if there are columns."""
        if self.by_entry or values is None or values.dim() != 2:
            return values
        return values[:, self.shard.start : self.shard.stop]

    def _network(self, model: nn.Module) -> DistributedDataParallel:
        """The model, with gradients that are summed during backward."""
        if not self._parallel or self._parallel[0].module is not model:
            made = DistributedDataParallel(model, process_group=self.shard.group, **_BUFFERS_APART)
            # a lambda, since string annotations are refused
            made.register_comm_hook(self.shard.group, lambda group, bucket: _sum_bucket(group, bucket))
            self._parallel = [made]
        return self._parallel[0]

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The state of this process's tasks, with the names of an objective that is not sharded."""
        return self.inner.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load what `state_dict` returned in a process with the same tasks."""
        return self.inner.load_state_dict(*args, **kwargs)

    def gather_tasks(self, values: Tensor) -> Tensor:
        """Values `[m, ...]` of all tasks, from those of the tasks of each process."""
        return values if self.by_entry else gather_rows(values, self.shard.sizes(), self.shard.group)

    @property
    def own_tasks(self) -> slice:
        """The tasks whose state this process has."""
        return slice(self.shard.start, self.shard.stop)

    def warm_start(self, scores: Tensor, labels: Tensor) -> None:
        """Place the block variables of this process's tasks, given logits and labels of all tasks."""
        if len(self.shard):
            self.inner.warm_start(self._columns(scores), self._columns(labels))

    def start_at(self, model: nn.Module) -> None:
        """Put block state that follows the model's weights at these weights."""
        self.inner.start_at(owned_heads(model, self.shard) if self.evaluates_model else model)

    def set_class_counts(self, positives: Tensor, negatives: Tensor, num_rows: float) -> None:
        """Raise TypeError: every process has the counts of its tasks from the labels."""
        raise TypeError("ShardedObjective takes its class counts from the labels it is made with")

    @property
    def tracks_thresholds(self) -> bool:
        """Whether `inner` does."""
        return self.inner.tracks_thresholds

    def thresholds(self, scores: Tensor | None = None, labels: Tensor | None = None) -> Tensor | None:
        """Those of all tasks; every process must call this."""
        own = self.inner.thresholds(self._columns(scores), self._columns(labels))
        return None if own is None else self.gather_tasks(own)

    def threshold_report(self, scores: Tensor, labels: Tensor) -> ThresholdReport | None:
        """That of all tasks; every process must call this."""
        found = None
        if self.tracks_thresholds:  # nothing, unless there are tasks
            found = ThresholdReport(*[self.inner.task_weight[:0].float()] * 4)
        if len(self.shard):
            found = self.inner.threshold_report(self._columns(scores), self._columns(labels))
        return None if found is None else ThresholdReport(*map(self.gather_tasks, found))

    def per_positive_state(self) -> list[str]:
        """As in `inner`, whose names are those of `state_dict`."""
        return self.inner.per_positive_state()

    def memory_note(self) -> str | None:
        """That of `inner`, for the tasks of this process."""
        return self.inner.memory_note()

    def gradient_norm(self, model: nn.Module) -> Tensor:
        """Norm of all gradients: those of the model, and those of the tasks of all processes."""
        shared, own = (
            nn.utils.get_total_norm([p.grad for p in part.parameters() if p.grad is not None]).square()
            for part in (model, self.inner)
        )
        own = own.to(shared.device)
        dist.all_reduce(own, group=self.shard.group)
        return (shared + own).sqrt()

    def diagnostics(self) -> dict[str, Tensor]:
        """Those of all tasks; every process must call this."""
        names, numbers = self._numbers(None)
        dist.all_reduce(numbers, group=self.shard.group)
        found = dict(zip(names, numbers.unbind(), strict=True))
        return {name: found[name] for name in self.inner.diagnostics()}

    @torch.no_grad()
    def average_running_statistics(self, model: nn.Module) -> None:
        """Make running statistics of batch normalization the same everywhere: the mean over rows seen."""
        layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
        statistics = [buffer for layer in layers for buffer in layer.buffers(recurse=False)]
        seen, self.rows_seen = self.rows_seen, 0
        if not statistics:
            return
        total = statistics[0].new_tensor([seen], dtype=torch.float64)
        dist.all_reduce(total, group=self.shard.group)
        if total == 0:
            return
        for buffer in statistics:
            if buffer.is_floating_point():
                dist.all_reduce(buffer.mul_(seen / float(total)), group=self.shard.group)
            else:
                dist.all_reduce(buffer, dist.ReduceOp.MAX, group=self.shard.group)


def owned_heads(model: nn.Module, shard: Shard) -> MultiTask:
    """The model with the heads of some tasks: the same encoder, views of the heads, separate gradients."""
    model = as_multitask(model)
    part = copy.copy(model)
    part._parameters = {
        name: None if p is None else nn.Parameter(shard.take(p.detach()), p.requires_grad)
        for name, p in model._parameters.items()
    }
    return part


def _choose(part: Any, keep: Tensor) -> Any:
    """Some tasks of a batch or draw, by their places in it; their importance is unchanged."""
    changes: dict[str, Any] = {"tasks": part.tasks[keep], "labels": part.labels[keep]}
    if part.rows is not None:
        changes["rows"] = part.rows[keep]
    if part.lower is not None:
        changes["lower"] = _choose(part.lower, keep)
    if isinstance(part, TaskBatch):
        changes["inputs"] = tree_map(lambda leaf: leaf[keep], part.inputs)
    return replace(part, **changes)


def _sum_bucket(group: Any, bucket: Any) -> torch.futures.Future[Tensor]:
    """Sum gradients: processes compute parts of one estimate, not estimates to be averaged."""
    summing = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    return summing.get_future().then(lambda done: done.value()[0])
