"""From a sampler's draws to batches with inputs, in order, resumable while inputs are read ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

import torch
from torch import Tensor

from mmb.auc import Batch, DenseBatch, TaskBatch
from mmb.auc.sampling import RowDraw, Sampler, TaskDraw
from mmb.auc.sharded import ShardedObjective
from mmb.data import Dataset
from mmb.data.inputs.graphs import GraphBatch, GraphInputs
from mmb.models.task_graphs import stack_tasks

Draws = Sampler[TaskDraw] | Sampler[RowDraw]
_Drawn = tuple[TaskDraw | RowDraw, dict[str, Any]]  # a draw, and where the sampler stood after it
_TRIAL_DRAWS = 64  # from which the size of ragged batches is told


class Feed:
    """An endless source of training batches on the data's device.

    The sampler is ahead of training: by one draw, and by more where images on disk are read ahead. What is
    saved is where it stood after the draw that was handed out last; nothing is lost or repeated on resuming.

    Args:
        dataset: The data.
        sampler: Draws rows of the training part, counted within it, on the host.
        generator: Of the augmentation, where the data has one.
        tasks_apart: Whether the objective evaluates each task on its own. Batches then have their task
            numbers on the host, where its weight copies may be.
        prefetch: Told the tasks of the next batch before each batch is handed out.
        sharded: The objective, where many processes share it. Batches then have the inputs that this process
            evaluates; all processes draw the same.
        one_shape: Whether batches are to have one shape also where rows differ in size, and everything on the
            device: graphs are then padded to what the sampler draws. Batches that do not fit keep the shape
            they have.
    """

    def __init__(
        self,
        dataset: Dataset,
        sampler: Draws,
        generator: torch.Generator,
        tasks_apart: bool = False,
        prefetch: Callable[[Tensor], None] | None = None,
        sharded: ShardedObjective | None = None,
        one_shape: bool = False,
    ) -> None:
        self.dataset = dataset
        self.sampler = sampler
        self.generator = generator
        self.tasks_apart = tasks_apart
        self.prefetch = prefetch
        self.sharded = sharded
        self._rows = dataset.split["train"]
        self._position = sampler.state_dict()
        self._tasks_on_host = tasks_apart and not one_shape
        self._task_room: tuple[int, int] | None = None
        if one_shape and isinstance(dataset.inputs, GraphInputs):
            room = room_for_draws(dataset.inputs, self._rows, sampler, tasks_apart)
            if tasks_apart:
                self._task_room = room
            else:
                self.dataset = replace(dataset, inputs=replace(dataset.inputs, room=room))

    def __iter__(self) -> Iterator[Batch]:
        drawn: deque[tuple[_Drawn, _Drawn]] = deque()
        inputs = (batch for _, batch in self.dataset.stream(self._draw_rows(drawn), self.generator))
        for first in inputs:
            (draw, after), (following, _) = drawn.popleft()
            if isinstance(draw, RowDraw):
                batch: Batch = self._dense(draw, first)
            else:
                lower = None if draw.lower is None else self._sampled(draw.lower, next(inputs))
                batch = self._sampled(draw, first, lower)
            self._position = after
            if self.prefetch is not None and isinstance(following, TaskDraw):
                self.prefetch(following.tasks)
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Where the feed stands: after the last batch that was handed out."""
        return {"sampler": self._position, "augmentation": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; iterate anew afterwards."""
        self.sampler.load_state_dict(state["sampler"])
        self.generator.set_state(state["augmentation"])
        self._position = state["sampler"]

    def _draw_rows(self, drawn: deque[tuple[_Drawn, _Drawn]]) -> Iterator[Tensor]:
        """Rows in the order in which inputs are wanted: of each draw, then of its lower level."""
        for this, following in pairwise(self._draws()):
            drawn.append((this, following))
            draw, _ = this
            yield self._rows[self._evaluated(draw)]
            if isinstance(draw, TaskDraw) and draw.lower is not None:
                yield self._rows[self._evaluated(draw.lower)]

    def _draws(self) -> Iterator[_Drawn]:
        while True:
            for draw in self.sampler:
                after = self.sampler.state_dict()
                if self.sharded is not None and isinstance(draw, TaskDraw):
                    yield self.sharded.share_tasks(draw), after
                else:
                    yield draw, after

    def _evaluated(self, draw: TaskDraw | RowDraw) -> Tensor:
        """The rows of a draw whose inputs are needed here; one, for company, where there are none."""
        rows = draw.rows.flatten()
        if self.sharded is not None and isinstance(draw, RowDraw):
            return rows[self.sharded.input_rows(len(rows))]
        return rows if len(rows) else rows.new_zeros(1)

    def _dense(self, draw: RowDraw, inputs: Any) -> DenseBatch:
        labels = self.dataset.labels
        rows = self._rows[draw.rows].to(labels.device, non_blocking=True)
        weights = None if draw.weights is None else self._here(draw.weights)
        return DenseBatch(inputs, labels[rows], weights, self._here(draw.rows))

    def _sampled(self, draw: TaskDraw, inputs: Any, lower: TaskBatch | None = None) -> TaskBatch:
        return TaskBatch(
            self._fold(inputs, draw.rows),
            self._here(draw.labels),
            draw.tasks if self._tasks_on_host else self._here(draw.tasks),
            self._here(draw.rows),
            lower,
            None if draw.weights is None else self._here(draw.weights),
            None if draw.drawn is None else self._here(draw.drawn),
        )

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
        """Nodes and edges to pad each task's graphs to: one size, if asked for and they fit."""
        assert isinstance(self.dataset.inputs, GraphInputs)
        nodes, edges = self.dataset.inputs.largest(self._rows[rows])
        if self._task_room is not None and nodes < self._task_room[0] and edges <= self._task_room[1]:
            return self._task_room
        return nodes + 1, edges

    def _here(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.dataset.device, non_blocking=True)


def room_for_draws(inputs: GraphInputs, rows: Tensor, sampler: Draws, tasks_apart: bool) -> tuple[int, int]:
    """Nodes and edges that hold what a sampler draws, nearly always: five standard deviations of room.

    Eight for each task of a draw, since molecules of some tasks are larger. Sizes are rounded up, by up to a
    thirty-second: runs of other seeds then have the same, and what was compiled for one serves all.

    Args:
        inputs: The graphs.
        rows: The rows that draws count in.
        sampler: Some draws of it are tried; it stands where it stood afterwards.
        tasks_apart: Whether room is for each task of a draw, or for a whole draw.
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
