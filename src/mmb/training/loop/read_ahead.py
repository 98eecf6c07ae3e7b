"""Draws and the inputs they need, in order; resumable while inputs are read ahead."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise, tee
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmb.auc import Draw, Objective, RowDraw, Sampler, TaskDraw
from mmb.data import Dataset

Draws = Sampler[TaskDraw] | Sampler[RowDraw]


class Read(NamedTuple):
    """A draw with its inputs.

    Attributes:
        draw: This process's share of the draw.
        following: The next one.
        inputs: Model input of the rows that this process evaluates.
        lower_inputs: The same for the lower level; None if the draw has none.
    """

    draw: Draw
    following: Draw
    inputs: Any
    lower_inputs: Any


class _Drawn(NamedTuple):
    draw: Draw
    position: dict[str, Any]  # of the sampler after the draw


class ReadAhead:
    """An endless source of draws with their inputs.

    The sampler is ahead of training: by one draw, and by more where images on disk are read ahead. The state
    is the position of the sampler after the last draw that was handed out, so that resuming neither loses
    nor repeats a draw.

    Args:
        dataset: The data.
        sampler: Draws rows of the training part, counted within it, on the host.
        generator: For the augmentation, if the data has one.
        objective: Says what this process works on.
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
        """The position after the last draw that was handed out."""
        return {"sampler": self._position, "augmentation": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; start a new iteration afterwards."""
        self.sampler.load_state_dict(state["sampler"])
        self.generator.set_state(state["augmentation"])
        self._position = state["sampler"]

    def _drawn(self) -> Iterator[_Drawn]:
        while True:
            for draw in self.sampler:
                yield _Drawn(self.objective.share(draw), self.sampler.state_dict())

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
