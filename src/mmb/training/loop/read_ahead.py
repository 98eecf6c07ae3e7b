"""Draws and the inputs they need, in order; resumable while inputs are read ahead."""

from collections.abc import Iterator
from itertools import islice, pairwise, tee
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmb.auc import Draw, Objective, RowDraw, Sampler, TaskDraw
from mmb.data import Dataset

Draws = Sampler[TaskDraw] | Sampler[RowDraw]


class Read(NamedTuple):
    """This process's share of a draw, with its inputs."""

    draw: Draw
    following: Draw  # the next one
    inputs: Any  # of the rows that this process evaluates
    lower_inputs: Any  # the same for the lower level; None if the draw has none


class ReadAhead:
    """An endless source of draws with their inputs.

    The sampler is ahead of training: by one draw, and by more where images on disk are read ahead. The state
    is the position of the sampler after the last draw that was yielded, so that resuming neither loses nor
    repeats a draw. The arguments are those of `Feed`.
    """

    def __init__(
        self, dataset: Dataset, sampler: Draws, generator: torch.Generator, objective: Objective
    ) -> None:
        self.dataset, self.sampler, self.generator, self.objective = dataset, sampler, generator, objective
        self._position = sampler.state_dict()

    def __iter__(self) -> Iterator[Read]:
        pairs, ahead = tee(pairwise(self._drawn()))
        rows = (rows for (draw, _), _ in ahead for rows in self._rows(draw))
        inputs = (batch for _, batch in self.dataset.stream(rows, self.generator))
        for (draw, position), (following, _) in pairs:
            upper, *lower = islice(inputs, len(self._levels(draw)))
            self._position = position
            yield Read(draw, following, upper, lower[0] if lower else None)

    def state_dict(self) -> dict[str, Any]:
        """The position after the last draw that was yielded."""
        return {"sampler": self._position, "augmentation": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; start a new iteration afterwards."""
        self.sampler.load_state_dict(state["sampler"])
        self.generator.set_state(state["augmentation"])
        self._position = state["sampler"]

    def _drawn(self) -> Iterator[tuple[Draw, dict[str, Any]]]:
        """This process's share of each draw, and the position of the sampler after it."""
        while True:
            for draw in self.sampler:
                yield self.objective.share(draw), self.sampler.state_dict()

    @staticmethod
    def _levels(draw: Draw) -> list[Draw]:
        """The draw, and that of its lower level, if it has one."""
        lower = draw.lower if isinstance(draw, TaskDraw) else None
        return [draw] if lower is None else [draw, lower]

    def _rows(self, draw: Draw) -> list[Tensor]:
        """Rows of the data whose inputs this process needs, for each level."""
        train = self.dataset.split["train"]
        return [train[self._evaluated(level)] for level in self._levels(draw)]

    def _evaluated(self, draw: Draw) -> Tensor:
        if isinstance(draw, RowDraw):
            return draw.rows[self.objective.input_rows(len(draw.rows))]
        rows = draw.rows.flatten()
        return rows if len(rows) else rows.new_zeros(1)  # a process without tasks: inputs cannot be empty
