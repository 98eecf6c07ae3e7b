"""From a draw and its inputs to a batch on the device, in the shape that the objective needs."""

from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from mmb.auc import Batch, RowDraw, TaskBatch
from mmb.data import Dataset
from mmb.data.inputs.graphs import GraphBatch, GraphInputs
from mmb.models.task_graphs import stack_tasks
from mmb.training.loop.read_ahead import Draws, Read
from mmb.trees import map_tensors

_TRIAL_DRAWS = 64  # from which the size of ragged batches is estimated


@dataclass(frozen=True)
class BatchShaper:
    """Makes batches.

    With `tasks_apart`, each task is evaluated with its own weights and graphs are stacked by task, padded to
    the nodes and edges of `task_room` where they fit. With `tasks_on_host`, task numbers stay on the host,
    where weight copies may be.
    """

    dataset: Dataset
    tasks_apart: bool
    tasks_on_host: bool = False
    task_room: tuple[int, int] | None = None

    def __call__(self, read: Read) -> Batch:
        """The batch of a draw with its inputs."""
        here = map_tensors(lambda part: part.to(self.dataset.device, non_blocking=True), read.draw)
        if isinstance(read.draw, RowDraw):
            rows = self.dataset.split["train"][read.draw.rows].to(self.dataset.device, non_blocking=True)
            return here.with_inputs(read.inputs, self.dataset.labels[rows])
        lower = read.draw.lower
        below = None if lower is None else self._fold(read.lower_inputs, lower.rows)
        batch: TaskBatch = here.with_inputs(self._fold(read.inputs, read.draw.rows), below)
        if not self.tasks_on_host:
            return batch
        below = None if batch.lower is None else replace(batch.lower, tasks=read.draw.tasks)
        return replace(batch, tasks=read.draw.tasks, lower=below)

    def _fold(self, inputs: Any, rows: Tensor) -> Any:
        """Model input of the rows `[tasks, rows]`, divided by task; None for no tasks."""
        if len(rows) == 0:
            return None
        if isinstance(inputs, Tensor):
            return inputs.reshape(*rows.shape, *inputs.shape[1:])
        if self.tasks_apart and isinstance(inputs, GraphBatch):
            return stack_tasks(inputs, len(rows), *self._room_for(rows))
        return Flat(inputs)

    def _room_for(self, rows: Tensor) -> tuple[int, int]:
        """Nodes and edges to pad each task's graphs to."""
        assert isinstance(self.dataset.inputs, GraphInputs)
        nodes, edges = self.dataset.inputs.largest(self.dataset.split["train"][rows])
        if self.task_room is not None and nodes < self.task_room[0] and edges <= self.task_room[1]:
            return self.task_room
        return nodes + 1, edges


def room_for_draws(inputs: GraphInputs, rows: Tensor, sampler: Draws, tasks_apart: bool) -> tuple[int, int]:
    """Nodes and edges that nearly always hold what a sampler draws: five standard deviations of room.

    With `tasks_apart`, each task of a draw gets this room, with eight standard deviations, since molecules of
    some tasks are larger. Sizes are rounded up by at most 1/32, so that runs of other seeds share compiled
    kernels.
    """
    before = sampler.state_dict()
    trial: list[Any] = list(islice(iter(sampler), _TRIAL_DRAWS))
    sampler.load_state_dict(before)
    whole = [draw.rows for draw in trial if draw.rows.shape == trial[0].rows.shape]
    runs = [run for drawn in whole for run in (drawn if tasks_apart else [drawn.flatten()])]
    sizes = torch.tensor([inputs.sizes(rows[run]) for run in runs]).double()
    room = 8 if tasks_apart else 5
    bound = sizes.mean(0) + room * sizes.std(0) if len(sizes) > 1 else 1.2 * sizes[0]
    nodes, edges = (_rounded_up(int(size)) for size in bound.tolist())
    return nodes, edges


def _rounded_up(size: int) -> int:
    grain = max(128, 1 << max(0, size.bit_length() - 6))
    return size // grain * grain + grain


@dataclass(frozen=True)
class Flat:
    """Model input of the rows of several tasks, task by task, that cannot be folded to `[tasks, rows]`."""

    inputs: Any

    def flatten_tasks(self) -> Any:
        """The model input."""
        return self.inputs
