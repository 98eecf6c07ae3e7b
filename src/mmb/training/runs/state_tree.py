"""Nested state as named tensors and a JSON text: safetensors and JSON can hold them, and nothing runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from mmb.training.processes.sharded_state import Piece

_TENSOR, _PIECES, _TUPLE, _PAIRS = "$tensor", "$pieces", "$tuple", "$pairs"


def take_apart(state: Any) -> tuple[dict[str, Tensor], str]:
    """Split a nest of dicts, lists and tuples of tensors and plain values into tensors and text.

    The tensors, by their place in the nest, are on the host, no two in the same memory (pieces stay
    as they are). In the text, which is JSON, each tensor is replaced by its place.

    Raises:
        TypeError: If there is anything else in the nest; the message names its place.
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
