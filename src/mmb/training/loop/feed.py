"""An endless source of training batches: read ahead, then shaped."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from mmb.auc import Batch, Objective, TaskDraw
from mmb.data import Dataset
from mmb.data.inputs.graphs import GraphInputs
from mmb.training.loop.batch_shapes import BatchShaper, room_for_draws
from mmb.training.loop.read_ahead import Draws, ReadAhead


class Feed:
    """Training batches on the data's device, for an objective.

    Args:
        dataset: The data.
        sampler: Draws rows of the training part, on the host.
        generator: For the augmentation, if the data has one.
        objective: Says what this process works on, and gets the next batch's tasks before each batch.
        one_shape: Whether batches have one shape, with everything on the device: graphs are padded to the
            size of the sampler's draws. Batches that do not fit keep their shape.
    """

    def __init__(
        self,
        dataset: Dataset,
        sampler: Draws,
        generator: torch.Generator,
        objective: Objective,
        one_shape: bool = False,
    ) -> None:
        apart, task_room = objective.weights_per_task, None
        if one_shape and isinstance(dataset.inputs, GraphInputs):
            room = room_for_draws(dataset.inputs, dataset.split["train"], sampler, apart)
            if apart:
                task_room = room
            else:
                dataset = replace(dataset, inputs=replace(dataset.inputs, room=room))
        self.objective = objective
        self.ahead = ReadAhead(dataset, sampler, generator, objective)
        self.shape = BatchShaper(dataset, apart, tasks_on_host=apart and not one_shape, task_room=task_room)

    def __iter__(self) -> Iterator[Batch]:
        for read in self.ahead:
            batch = self.shape(read)
            if isinstance(read.following, TaskDraw):
                self.objective.prefetch(read.following.tasks)
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch."""
        return self.ahead.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; start a new iteration afterwards."""
        self.ahead.load_state_dict(state)
