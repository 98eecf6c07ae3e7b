"""The tensors of a checkpoint in safetensors files: one file, or one from each process.

Files of many processes are written and read by `torch.distributed.checkpoint`, in its safetensors storage:
its own format has a pickle.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmb._extras import require
from mmb.training.processes.group import Ranks
from mmb.training.processes.sharded_state import Piece, Pieces

ALL = "tensors.safetensors"
"""The file of one process."""


def write_tensors(folder: Path, tensors: dict[str, Tensor], ranks: Ranks) -> None:
    """Write named tensors to an empty folder; all processes have the same ones, apart from `Piece`s."""
    if ranks.size == 1:
        require("safetensors.torch", extra="training").save_file(tensors, folder / ALL)
        return
    engine = _engine()
    writer = engine.HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        engine.save(
            tensors, storage_writer=writer, planner=engine.DefaultSavePlanner(flatten_state_dict=False)
        )
    except engine.CheckpointException as error:
        raise OSError("; ".join(str(problem) for problem, _ in error.failures.values())) from error


def read_tensors(folder: Path, divided: Collection[str]) -> dict[str, Any]:
    """Read the tensors in a folder, by name; those that were divided into `Piece`s as `Pieces`, unread."""
    if (folder / ALL).exists():
        tensors: dict[str, Any] = require("safetensors.torch", extra="training").load_file(folder / ALL)
        return tensors
    known = _engine().HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    empty = {name: partial(torch.empty, dtype=entry.properties.dtype) for name, entry in known.items()}

    def read_rows(name: str, start: int, stop: int) -> Tensor:
        total, *shape = known[name].size
        rows: Tensor = empty[name](stop - start, *shape)
        _read(folder, {name: Piece.of(rows, start, total)})
        return rows

    whole = {name: empty[name](entry.size) for name, entry in known.items() if name not in divided}
    _read(folder, whole)
    return whole | {name: Pieces(known[name].size[0], partial(read_rows, name)) for name in divided}


def _read(folder: Path, wanted: dict[str, Tensor]) -> None:
    """Fill tensors with the values saved under their names, without other processes."""
    engine = _engine()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that other processes do not take part
        engine.load(
            wanted,
            storage_reader=engine.HuggingFaceStorageReader(str(folder)),
            planner=engine.DefaultLoadPlanner(flatten_state_dict=False),
            no_dist=True,
        )


def _engine() -> Any:
    return importlib.import_module("torch.distributed.checkpoint")  # costs a second, so only when needed
