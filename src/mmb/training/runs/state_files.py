"""State of a checkpoint: a nest as named tensors and a JSON text, and the tensors as safetensors files.

Nothing in either is executed. Files of many processes are written and read by `torch.distributed.checkpoint`,
in its safetensors storage: its own format has a pickle.
"""

import importlib
import json
import warnings
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmb._extras import require
from mmb.training.processes.group import Ranks
from mmb.training.processes.sharded_state import Piece, Pieces

_TENSOR, _PIECES, _TUPLE, _PAIRS = "$tensor", "$pieces", "$tuple", "$pairs"
ALL = "tensors.safetensors"
"""The file of one process."""


def take_apart(state: Any) -> tuple[dict[str, Tensor], str]:
    """Split a nest of dicts, lists and tuples of tensors and plain values into tensors and text.

    The tensors, by their place in the nest, are on the host, and no two share memory (pieces stay as they
    are). In the text, which is JSON, each tensor is replaced by its place.
    """
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_encode(state, "state", tensors))
    memory: set[int] = set()
    for place, tensor in tensors.items():
        if not isinstance(tensor, Piece):
            start = tensor.untyped_storage().data_ptr()
            if start in memory:  # of another tensor (tied weights), which safetensors refuses
                tensors[place] = tensor.clone()
            memory.add(start)
    return tensors, text


def put_together(tensors: Mapping[str, Any], text: str) -> Any:
    """The nested state that `take_apart` split."""
    return _decode(json.loads(text), tensors)


def divided(text: str) -> set[str]:
    """The places of the tensors that were divided into pieces."""
    found: set[str] = set()
    json.loads(text, object_hook=lambda value: found.add(value[_PIECES]) if _PIECES in value else None)
    return found


def _encode(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Piece):
        tensors[place] = value
        return {_PIECES: place}
    if isinstance(value, Tensor):
        tensors[place] = value.detach().cpu().contiguous()
        return {_TENSOR: place}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _encode(item, f"{place}.{key}", tensors) for key, item in value.items()}
        return {_PAIRS: [[key, _encode(item, f"{place}.{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        items = [_encode(item, f"{place}.{index}", tensors) for index, item in enumerate(value)]
        return items if isinstance(value, list) else {_TUPLE: items}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"{place}: {type(value).__name__} cannot be in a checkpoint; use tensors and plain values"
    )


def _decode(value: Any, tensors: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    for kind in (_TENSOR, _PIECES):
        if kind in value:
            return tensors[value[kind]]
    if _TUPLE in value:
        return tuple(_decode(item, tensors) for item in value[_TUPLE])
    if _PAIRS in value:
        return {key: _decode(item, tensors) for key, item in value[_PAIRS]}
    return {key: _decode(item, tensors) for key, item in value.items()}


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
        return require("safetensors.torch", extra="training").load_file(folder / ALL)
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
