"""The state of a run in many processes: what each saves, and what each reads from a checkpoint.

Block state is divided by task, random streams by process; the rest is the same in every process. A piece of a
tensor says where it is in the whole, so that any number of processes can continue what any number saved.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from mmb.auc import Objective
from mmb.training.processes.group import Ranks

State = dict[str, Any]


class Piece(Tensor):
    """Some rows of a tensor whose other rows are in other processes, for `torch.distributed.checkpoint`."""

    start: int  # of the rows in the whole
    total: int  # rows of the whole

    @classmethod
    def of(cls, rows: Tensor, start: int, total: int) -> Self:
        """Mark rows as a piece; nothing is copied."""
        piece = rows.detach().as_subclass(cls)
        piece.start, piece.total = start, total
        return piece

    def size(self, *_: Any) -> torch.Size:  # type: ignore[override]
        """The size of the whole, which is compared with the saved one."""
        return torch.Size([self.total, *self.shape[1:]])

    def __create_write_items__(self, name: str, _: Any) -> list[Any]:
        from torch.distributed.checkpoint import metadata, planner

        items = []
        for chunk in self.__create_chunk_list__():
            index = metadata.MetadataIndex(name, chunk.offsets)
            properties = metadata.TensorProperties.create_from_tensor(self)
            content = planner.TensorWriteData(chunk, properties, self.size())
            items.append(planner.WriteItem(index, planner.WriteItemType.SHARD, tensor_data=content))
        return items

    def __create_chunk_list__(self) -> list[Any]:
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

        offsets = torch.Size([self.start, *(0 for _ in self.shape[1:])])
        return [ChunkStorageMetadata(offsets, self.shape)] if len(self) else []

    def __get_tensor_shard__(self, _: Any) -> Tensor:
        return self.as_subclass(Tensor)


@dataclass(frozen=True)
class Pieces:
    """A saved tensor that was divided among processes, not read yet."""

    total: int  # its rows
    read: Callable[[int, int], Tensor]  # the rows from a start to before a stop, however they were divided


@dataclass(frozen=True)
class Place:
    """Where the rows of a tensor of block state are in that of all processes, which is in order of tasks.

    For rows in another order than that of tasks, `rows[order]` is in it, and `among_all` says which rows of a
    single process, in that other order, they are.
    """

    start: int
    count: int
    total: int
    order: Tensor | None = None
    among_all: Tensor | None = None

    def piece(self, rows: Tensor) -> Piece:
        """The rows of this process, to be saved."""
        rows = rows if self.order is None else rows[self.order.to(rows.device)]
        return Piece.of(rows, self.start, self.total)

    def find(self, saved: Any) -> Tensor:
        """The rows of this process in what any number of processes saved."""
        total = saved.total if isinstance(saved, Pieces) else len(saved)
        if total != self.total:
            raise ValueError(f"block state: expected {self.total} rows in total, got {total}")
        stop = self.start + self.count
        if not isinstance(saved, Pieces):  # by one process
            return saved[self.start : stop] if self.among_all is None else saved[self.among_all]
        ordered = saved.read(self.start, stop)
        if self.order is None:
            return ordered
        return torch.empty_like(ordered).index_copy_(0, self.order, ordered)


def task_place(objective: Objective) -> Place:
    """Where the tasks of an objective are among all tasks."""
    own = objective.own_tasks
    return Place(own.start, own.stop - own.start, objective.num_tasks)


def places(objective: Objective, labels: Tensor) -> dict[str, Place]:
    """Where each entry of an objective's state is in that of all processes; labels `[n, m]` of all tasks."""
    own = objective.own_tasks
    found = dict.fromkeys(objective.state_dict(), task_place(objective))
    for name in objective.shared_state():  # of one process
        whole = len(objective.state_dict()[name])
        found[name] = Place(0, whole, whole)
    for name in objective.per_positive_state():  # in order of rows, then tasks
        tasks = (labels == 1).nonzero()[:, 1].cpu()
        mine = ((tasks >= own.start) & (tasks < own.stop)).nonzero().squeeze(1)
        order, first = tasks[mine].argsort(stable=True), int((tasks < own.start).sum())
        found[name] = Place(first, len(mine), len(tasks), order, mine)
    return found


class Division:
    """How the state of a run is divided among processes; the labels `[n, m]` are those of all tasks."""

    def __init__(self, objective: Objective, labels: Tensor, ranks: Ranks) -> None:
        self.ranks = ranks
        self._tasks = task_place(objective)
        self._places = places(objective, labels)

    def divide(self, state: State) -> State:
        """The state of a run with what only this process has as pieces; for one process, the state itself."""
        if self.ranks.size == 1:
            return state
        blocks = {name: self._place(name).piece(value) for name, value in state["objective"].items()}
        return {
            **state,
            "objective": blocks,
            "optimizer": _with_own(state["optimizer"], self._tasks.piece),
            "feed": {**state["feed"], "augmentation": self._row(state["feed"]["augmentation"])},
            "random": {name: self._row(stream) for name, stream in state["random"].items()},
        }

    def own(self, saved: State, now: State) -> State:
        """The state for this process in what any number saved; streams they did not save stay as `now`."""
        feed, streams = saved["feed"], now["random"].items()
        augmentation = self._own_row(feed["augmentation"], now["feed"]["augmentation"])
        return {
            **saved,
            "objective": self.own_blocks(saved["objective"]),
            "optimizer": _with_own(saved["optimizer"], self._tasks.find),
            "feed": {**feed, "augmentation": augmentation},
            "random": {name: self._own_row(saved["random"].get(name), stream) for name, stream in streams},
        }

    def own_blocks(self, saved: State) -> State:
        """The block state of this process's tasks in what was saved of the objective."""
        return {name: self._place(name).find(value) for name, value in saved.items()}

    def _place(self, name: str) -> Place:
        """Where an entry of the objective's state is; what came with a warm start has a row per task."""
        return self._places.get(name, self._tasks)

    def _row(self, stream: Tensor) -> Piece:
        return Piece.of(stream.unsqueeze(0), self.ranks.rank, self.ranks.size)

    def _own_row(self, saved: Any, now: Tensor) -> Tensor:
        rank = self.ranks.rank
        if isinstance(saved, Pieces):
            return saved.read(rank, rank + 1).squeeze(0) if rank < saved.total else now
        return now if saved is None or rank > 0 else saved


def _with_own(optimizer: State, change: Callable[[Any], Any]) -> State:
    """An optimizer's state with a change to the tensors of the objective's parameters, one row per task."""
    state = dict(optimizer["state"])
    groups = [group for group in optimizer["param_groups"][1:] if group.get("part") != "encoder"]
    own = [index for group in groups for index in group["params"]]
    for index in own:
        for name, value in state.get(index, {}).items():
            if isinstance(value, Pieces) or (isinstance(value, Tensor) and value.dim() > 0):
                state[index] = {**state[index], name: change(value)}
    return {**optimizer, "state": state}
