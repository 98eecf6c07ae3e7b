"""Any objective divided among processes: each keeps the state of its tasks, and gradients are summed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from mmb.auc.baselines import CrossEntropy
from mmb.auc.batches import Batch, DenseBatch, TaskBatch
from mmb.auc.compositional.heads import HeadCompositionalAUC
from mmb.auc.compositional.whole_network import CompositionalAUC
from mmb.auc.labels import Labels
from mmb.auc.objective import Objective, model_scores
from mmb.auc.sampling import TaskDraw
from mmb.distributed import Shard, gather_rows, rows_to_blocks, sum_gradients
from mmb.models.multitask import MultiTask
from mmb.trees import tree_map

_OfTasks = TypeVar("_OfTasks", TaskBatch, TaskDraw)
_NEW_NAME = "forward_sync_buffers"  # in newer versions of torch
_BUFFERS_APART: dict[str, Any] = {
    _NEW_NAME if _NEW_NAME in signature(DistributedDataParallel).parameters else "broadcast_buffers": False
}


class ShardedObjective(Objective):
    r"""An objective whose tasks are divided among the processes of a group.

    Every process draws the same batches and works on its share of them, `share` of each; what `backward`
    leaves in `.grad` of the model is the estimate of the whole batch, the same on every process, whatever
    their number. Block state, and the objective's own parameters with their gradients, exist only for the
    tasks of this process: `m / N` of them.

    - Task-sampled batches: a process takes the sampled tasks that it owns (or none), and the gradients are
      summed, with one all-reduce of the size of the encoder and the heads of all sampled tasks (of the size
      of the model, if it is no [`MultiTask`][mmb.models.multitask.MultiTask]), whatever `m` is.
    - Dense batches: a process evaluates the model on its part of the rows. An objective with a term for
      each entry (cross-entropy, focal) needs nothing else; all others need all rows of a task at once,
      so that logits `[n/N, m]` are exchanged for `[n, m/N]`, and derivatives back. Gradients are summed in
      buckets while backward is still going on (`DistributedDataParallel`).
    - Compositional training evaluates each task with weights of its own: with dense batches, a process
      evaluates all rows, for its own tasks. Gradients are summed with one all-reduce.

    Batch normalisation uses the statistics of the rows that a process evaluates;
    `average_running_statistics` makes the running ones the same everywhere.

    Gradients must be zero or None before `backward`: it sums what it finds over processes.

    Args:
        labels: The training labels of all tasks.
        make: Makes the objective from the labels of some tasks. Compositional training takes the model
            with [`owned_heads`][mmb.auc.sharded.owned_heads].
        group: The process group; None is the default group.

    Attributes:
        inner: The objective of the tasks of this process (of all tasks, where it has no state).
        shard: The tasks of this process.
        rows_seen: Rows evaluated since running statistics were averaged.

    Raises:
        RuntimeError: If `torch.distributed` has not been initialized.
        ValueError: If a parameter of the objective is not one per task.
    """

    def __init__(
        self,
        labels: Labels | Tensor,
        make: Callable[[Labels], Objective],
        group: dist.ProcessGroup | None = None,
    ) -> None:
        nn.Module.__init__(self)  # what Objective makes of the labels is in `inner`
        labels = labels if isinstance(labels, Labels) else Labels(labels)
        self.num_rows, self.num_tasks, self.num_usable = labels.num_rows, labels.num_tasks, labels.num_usable
        self.shard = Shard.of_this_process(labels.num_tasks, group)
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.inner = make(labels.columns(self.shard.start, self.shard.stop))
        self._by_entry = isinstance(self.inner, CrossEntropy)
        self._own_weights = isinstance(self.inner, CompositionalAUC | HeadCompositionalAUC)
        if self._by_entry:
            self.inner = make(labels)
        for name, parameter in self.inner.named_parameters():
            if parameter.dim() == 0 or len(parameter) != len(self.shard):
                raise ValueError(
                    f"{name}: expected a parameter with a leading axis of {len(self.shard)} tasks, "
                    f"got shape {tuple(parameter.shape)}; what tasks share belongs in the model"
                )
        self._share = int((self.inner.task_weight > 0).sum()) / labels.num_usable
        self.rows_seen = 0
        self._parallel: list[DistributedDataParallel] = []  # in a list: it is no part of this module

    def share(self, batch: Batch) -> Batch:
        """What this process works on out of a batch that all of them have, to be given to `backward`.

        Args:
            batch: Inputs are tensors, or a nest of them. (Where inputs are costly, share the draw instead:
                `share_tasks` and `input_rows`.)
        """
        if isinstance(batch, TaskBatch):
            return self.share_tasks(batch)
        here = self.input_rows(len(batch.labels))
        return replace(batch, inputs=tree_map(lambda leaf: leaf[here], batch.inputs))

    def share_tasks(self, batch: _OfTasks) -> _OfTasks:
        """The tasks of a batch or draw that are for this process.

        They are those it owns, or an even part where the objective has no state. `weights` makes up for
        their number: what processes get from their shares adds up to what one would get from all.
        """
        tasks = batch.tasks
        if self._by_entry:
            keep = torch.arange(len(tasks), device=tasks.device)[self.rank :: self.size]
        else:
            keep = ((tasks >= self.shard.start) & (tasks < self.shard.stop)).nonzero().squeeze(1)
        weights = torch.ones(len(keep), dtype=self.inner.task_weight.dtype, device=tasks.device)
        weights = weights if batch.weights is None else batch.weights[keep].to(weights.dtype)
        chosen = _choose(batch, keep)
        return replace(chosen, weights=weights * (len(keep) / len(tasks)), drawn=tasks)

    def input_rows(self, num_rows: int) -> slice:
        """Which rows of a dense batch this process evaluates; never none, if only for company."""
        if self._own_weights:
            return slice(0, num_rows)
        sizes = self._divided(num_rows)
        start = sum(sizes[: self.rank])
        return slice(start, start + sizes[self.rank]) if sizes[self.rank] else slice(0, min(2, num_rows))

    def prefetch(self, tasks: Tensor) -> None:
        """Start bringing the state of the next share's tasks to the device, where the objective does so."""
        ahead = getattr(self.inner, "prefetch", None)
        if ahead is not None and len(tasks):
            ahead(self._local(tasks))

    def forward(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not for this objective: gradients must be summed after the model's backward.

        Raises:
            TypeError: Always.
        """
        raise TypeError("ShardedObjective sums gradients over processes: call backward(model, batch)")

    def backward(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Fill `.grad` with the estimate of all processes together, and move the state of owned tasks.

        Args:
            model: As for the objective itself, the same on every process.
            batch: The `share` of this process. Of a dense batch, only the inputs are divided.

        Returns:
            Detached numbers worth logging, those of all tasks, the same on every process.
        """
        if isinstance(batch, DenseBatch) and not self._own_weights:
            return self._dense(model, batch)
        loss = self._apart(model, batch) if self._own_weights else self._sampled(model, batch)
        for parameter in self.inner.parameters():  # as if the tasks had been there, unsampled
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        names, numbers = self._numbers(loss)
        weights = [p for p in model.parameters() if p.requires_grad]
        drawn = batch.drawn if isinstance(batch, TaskBatch) else None
        heads = [model.weight, model.bias] if isinstance(model, MultiTask) and drawn is not None else []
        drawn = None if drawn is None else drawn.to(numbers.device, non_blocking=True)
        summed = sum_gradients(weights, numbers, self.shard.group, heads, drawn)
        return dict(zip(names, summed.unbind(), strict=True))

    def _sampled(self, model: nn.Module, batch: Batch) -> Tensor:
        """Gradients of the sampled tasks of this process; returns its part of the loss."""
        assert isinstance(batch, TaskBatch)
        if len(batch.tasks) == 0:
            return self.inner.task_weight.new_zeros(())
        self.rows_seen += batch.labels.numel()
        scores = model_scores(model, batch, self.num_tasks)
        loss: Tensor = self.inner(scores, batch.labels, self._local(batch.tasks), batch.weights, batch.rows)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _apart(self, model: nn.Module, batch: Batch) -> Tensor:
        """The same where the objective evaluates the model itself, with weights of each task's own."""
        sampled = isinstance(batch, TaskBatch)
        if len(self.shard) == 0 or (isinstance(batch, TaskBatch) and len(batch.tasks) == 0):
            return self.inner.task_weight.new_zeros(())
        self.rows_seen += batch.labels.numel() if sampled else len(batch.labels)
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
            lower = batch.lower
            return replace(
                batch,
                tasks=self._local(batch.tasks),
                lower=None if lower is None else replace(lower, tasks=self._local(lower.tasks)),
            )
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
        if self._by_entry:
            here = slice(start, start + mine)
            weights = torch.ones_like(labels[:, 0]) if weights is None else weights
            labels, weights = labels[here], weights[here].to(self.inner.task_weight.dtype) * (mine / count)
            rows = None if rows is None else rows[here]
        else:
            logits = rows_to_blocks(logits, sizes, self.shard.sizes(), self.shard.group)
            labels, weights = self._columns(labels), self._columns(weights)
        loss = self.inner(logits, labels, None, weights, rows) if logits.numel() else logits.sum()
        names, numbers = self._numbers(loss.detach())
        summing = dist.all_reduce(numbers, group=self.shard.group, async_op=True)
        loss.backward()
        summing.wait()
        return dict(zip(names, numbers.unbind(), strict=True))

    def _numbers(self, loss: Tensor) -> tuple[list[str], Tensor]:
        """Names and this process's part of what is logged: the loss, and means over tasks."""
        found = self.inner.diagnostics()
        means = [value * self._share if self._share else torch.zeros_like(value) for value in found.values()]
        dtype = self.inner.task_weight.dtype  # whatever that of a loss of no tasks is
        return ["loss", *found], torch.stack([value.to(dtype) for value in (loss, *means)])

    def _divided(self, num_rows: int) -> list[int]:
        """Rows of a dense batch for each process; none gets one alone, which cannot be normalised."""
        parts = max(1, min(self.size, num_rows // 2))
        sizes = [num_rows // parts + (rank < num_rows % parts) for rank in range(parts)]
        return sizes + [0] * (self.size - parts)

    def _local(self, tasks: Tensor) -> Tensor:
        return tasks if self._by_entry else tasks - self.shard.start

    def _columns(self, values: Any) -> Any:
        """The columns of the tasks of `inner`, where there are columns."""
        if self._by_entry or values is None or values.dim() != 2:
            return values
        return values[:, self.shard.start : self.shard.stop]

    def _network(self, model: nn.Module) -> DistributedDataParallel:
        """The model, with gradients that are summed during backward."""
        if not self._parallel or self._parallel[0].module is not model:
            made = DistributedDataParallel(model, process_group=self.shard.group, **_BUFFERS_APART)
            # a lambda, since annotations that are texts are refused
            made.register_comm_hook(self.shard.group, lambda group, bucket: _sum_bucket(group, bucket))
            self._parallel = [made]
        return self._parallel[0]

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The state of the tasks of this process, under the names it has in one process."""
        return self.inner.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Continue where `state_dict` was taken by a process with the same tasks."""
        return self.inner.load_state_dict(*args, **kwargs)

    def gather_tasks(self, values: Tensor) -> Tensor:
        """Values `[m, ...]` of all tasks, from those of the tasks of each process."""
        return values if self._by_entry else gather_rows(values, self.shard.sizes(), self.shard.group)

    def diagnostics(self) -> dict[str, Tensor]:
        """Those of all tasks; every process must ask."""
        names, numbers = self._numbers(self.inner.task_weight.new_zeros(()))
        dist.all_reduce(numbers, group=self.shard.group)
        return dict(zip(names[1:], numbers[1:].unbind(), strict=True))

    @torch.no_grad()
    def average_running_statistics(self, model: nn.Module) -> None:
        """Make running statistics of batch normalisation the same everywhere: the mean over rows seen."""
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


def own_tasks(objective: Objective) -> Objective:
    """The objective of the tasks of this process, which are all of them unless it is sharded."""
    return objective.inner if isinstance(objective, ShardedObjective) else objective


def of_own_tasks(objective: Objective, values: Tensor) -> Tensor:
    """The columns of `own_tasks` out of `[n, m]`."""
    return objective._columns(values) if isinstance(objective, ShardedObjective) else values


def of_all_tasks(objective: Objective, values: Tensor) -> Tensor:
    """Values `[m, ...]` of all tasks, from those of `own_tasks`; every process must ask."""
    return objective.gather_tasks(values) if isinstance(objective, ShardedObjective) else values


def owned_heads(model: nn.Module, shard: Shard) -> MultiTask:
    """The model with the heads of some tasks alone: the same encoder, and views of the heads' weights.

    Args:
        model: The model of all tasks.
        shard: The tasks.

    Returns:
        A model whose heads follow those of the first; their gradients are its own.

    Raises:
        TypeError: If the model is no [`MultiTask`][mmb.models.multitask.MultiTask].
    """
    if not isinstance(model, MultiTask):
        raise TypeError(f"model: expected an mmb.models.MultiTask, got {type(model).__name__}")
    part = copy.copy(model)
    part._parameters = {
        name: None if p is None else nn.Parameter(shard.take(p.detach()), p.requires_grad)
        for name, p in model._parameters.items()
    }
    return part


def _choose(batch: _OfTasks, keep: Tensor) -> _OfTasks:
    """Some tasks of a batch or draw, by their places in it; importance weights are left alone."""
    changes: dict[str, Any] = {"tasks": batch.tasks[keep], "labels": batch.labels[keep]}
    if batch.rows is not None:
        changes["rows"] = batch.rows[keep]
    if batch.lower is not None:
        changes["lower"] = _choose(batch.lower, keep)
    if isinstance(batch, TaskBatch):
        changes["inputs"] = tree_map(lambda leaf: leaf[keep], batch.inputs)
    return replace(batch, **changes)


def _sum_bucket(group: Any, bucket: Any) -> torch.futures.Future[Tensor]:
    """Sum gradients; what processes compute are parts of one estimate, not estimates to be averaged."""
    summing = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    future: torch.futures.Future[Tensor] = summing.get_future().then(lambda done: done.value()[0])
    return future
