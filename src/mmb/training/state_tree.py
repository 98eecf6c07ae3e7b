"""Nested state as named tensors and a JSON text: what safetensors and JSON can hold, nothing to run."""

from __future__ import annotations

import json
from typing import Any

from torch import Tensor

_TENSOR, _TUPLE, _PAIRS = "$tensor", "$tuple", "$pairs"


def take_apart(state: Any) -> tuple[dict[str, Tensor], str]:
    """Split nested state into tensors and text.

    Args:
        state: A nest of dicts, lists and tuples of tensors, numbers, strings, booleans and None.

    Returns:
        The tensors, on the host and each with memory of its own, by their place in the nest; and JSON in
        which each tensor is replaced by that place.

    Raises:
        TypeError: If there is anything else in the nest; the message names its place.
    """
    tensors: dict[str, Tensor] = {}
    return tensors, json.dumps(_encode(state, "state", tensors))


def put_together(tensors: dict[str, Tensor], text: str) -> Any:
    """The nested state that `take_apart` split."""
    return _decode(json.loads(text), tensors)


def _encode(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        # A copy, because two entries may share memory (tied weights), which safetensors refuses.
        tensors[place] = value.detach().cpu().clone().contiguous()
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


def _decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        return tensors[value[_TENSOR]]
    if _TUPLE in value:
        return tuple(_decode(item, tensors) for item in value[_TUPLE])
    if _PAIRS in value:
        return {key: _decode(item, tensors) for key, item in value[_PAIRS]}
    return {key: _decode(item, tensors) for key, item in value.items()}
