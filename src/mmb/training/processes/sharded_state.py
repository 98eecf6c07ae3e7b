"""The state of a job in many processes: what each saves, and what each takes from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from mmb.auc import Objective
from mmb.training.processes.group import Ranks
from mmb.training.processes.pieces import Piece, Pieces, places, task_place

State = dict[str, Any]


class Division:
    """How the state of a job is divided: block state by task, random streams by process, all else is shared.

    Args:
        objective: The objective, sharded or of all tasks.
        labels: The training labels of all tasks, `[n, m]`.
        ranks: The processes.
    """

    def __init__(self, objective: Objective, labels: Tensor, ranks: Ranks) -> None:
        self.ranks = ranks
        self._tasks = task_place(objective)
        self._places = places(objective, labels)

    def divide(self, state: State) -> State:
        """The state of a job with what only this process has marked as pieces; for one process, as it is."""
        if self.ranks.size == 1:
            return state
        return {
            **state,
            "objective": {
                name: self._places[name].piece(value) for name, value in state["objective"].items()
            },
            "optimizer": _with_own(state["optimizer"], self._tasks.piece),
            "feed": {**state["feed"], "augmentation": self._row(state["feed"]["augmentation"])},
            "random": {name: self._row(stream) for name, stream in state["random"].items()},
        }

    def own(self, saved: State, now: State) -> State:
        """The state for this process in what any number of them saved.

        Args:
            saved: The state in a checkpoint.
            now: The state this process has. Its random streams go on where fewer processes saved theirs.
        """
        feed, random = saved["feed"], saved["random"]
        augmentation = self._own_row(feed["augmentation"], now["feed"]["augmentation"])
        return {
            **saved,
            "objective": self.own_blocks(saved["objective"]),
            "optimizer": _with_own(saved["optimizer"], self._tasks.find),
            "feed": {**feed, "augmentation": augmentation},
            "random": {
                name: self._own_row(random.get(name), stream) for name, stream in now["random"].items()
            },
        }

    def own_blocks(self, saved: State) -> State:
        """The block state of this process's tasks in what was saved of the objective."""
        return {name: self._places[name].find(value) for name, value in saved.items()}

    def _row(self, stream: Tensor) -> Piece:
        return Piece.of(stream.unsqueeze(0), self.ranks.rank, self.ranks.size)

    def _own_row(self, saved: Any, now: Tensor) -> Tensor:
        rank = self.ranks.rank
        if isinstance(saved, Pieces):
            return saved.read(rank, rank + 1).squeeze(0) if rank < saved.total else now
        stream: Tensor = now if saved is None or rank > 0 else saved
        return stream


def _with_own(optimizer: State, change: Callable[[Any], Any]) -> State:
    """An optimizer's state with a change to what it has for the objective's parameters, one row per task."""
    own = {index for group in optimizer["param_groups"][1:] for index in group["params"]}
    return {
        **optimizer,
        "state": {
            index: {name: _change(value, change) for name, value in entries.items()}
            if index in own
            else entries
            for index, entries in optimizer["state"].items()
        },
    }


def _change(value: Any, change: Callable[[Any], Any]) -> Any:
    counts_tasks = isinstance(value, Pieces) or (isinstance(value, Tensor) and value.dim() > 0)
    return change(value) if counts_tasks else value
