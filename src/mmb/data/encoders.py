"""Encoders by kind: made again from what a run keeps of them."""

import importlib
import json
from collections.abc import Mapping
from typing import Any

from mmb._import_paths import from_import_path, is_import_path
from mmb.data.dataset import Dataset, Encoder

_ENCODERS = {
    "columns": ("mmb.data.inputs.columns", "ColumnEncoder"),
    "molecules": ("mmb.data.inputs.molecule_cache", "MoleculeEncoder"),
    "images": ("mmb.data.inputs.image_encoder", "ImageEncoder"),
}


def encoder_from_json(data: Mapping[str, Any]) -> Encoder:
    """The encoder that wrote `data` with its `to_json`.

    Args:
        data: Its `kind` is `columns`, `images` or `molecules`, or the import path of your own class, which
            has a `from_json`.

    Raises:
        ValueError: If there is no encoder of that kind.
    """
    kind = data.get("kind")
    if isinstance(kind, str) and is_import_path(kind):
        found = from_import_path(kind)
    elif kind in _ENCODERS:
        module, name = _ENCODERS[kind]
        found = getattr(importlib.import_module(module), name)
    else:
        raise ValueError(
            f"there is no encoder of kind {kind!r}; kinds are {sorted(_ENCODERS)}, and the import path "
            "package.module:Class of your own class"
        )
    for name in ("from_json", "batches"):
        if not callable(getattr(found, name, None)):
            raise ValueError(f"the encoder {kind} has no method {name!r}; see mmb.data.Encoder")
    return found.from_json(data)


def check_encoder(dataset: Dataset) -> None:
    """Refuse a data set whose encoder, if it has one, cannot be made again from its JSON, as to predict.

    Raises:
        ValueError: If that fails; the message says why.
    """
    if dataset.encoder is None:
        return
    kind = type(dataset.encoder).__name__
    what = f"data set {dataset.name!r}: its encoder, a {kind}, cannot be kept with a run"
    if not callable(getattr(dataset.encoder, "to_json", None)):
        raise ValueError(f"{what}: it has no method 'to_json'; see mmb.data.Encoder")
    plain = dataset.encoder.to_json()
    if not isinstance(plain, Mapping):
        raise ValueError(
            f"{what}: to_json returned a {type(plain).__name__}, expected a dict with the key 'kind'"
        )
    try:
        again = encoder_from_json(json.loads(json.dumps(plain)))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{what}: {type(error).__name__}: {error}") from error
    if type(again).__qualname__ != type(dataset.encoder).__qualname__:
        raise ValueError(
            f"{what}: its kind {plain['kind']!r} is a {type(again).__name__}; give the import path of {kind}"
        )
    if json.dumps(again.to_json(), sort_keys=True) != json.dumps(plain, sort_keys=True):
        raise ValueError(f"{what}: from_json makes one whose to_json differs; keep all that it needs there")
