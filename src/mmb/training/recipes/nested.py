"""Nested dicts and their dotted keys: `{"optimizer": {"lr": 0.1}}` has the key `optimizer.lr`."""

from collections.abc import Mapping
from typing import Any

from mmb._import_paths import is_import_path
from mmb._names import first_few

Fragment = dict[str, Any]
"""A nested dict with some keys of a recipe."""

_OF_METHOD = ("objective", "branches", "grid")


def flatten(nested: Mapping[str, Any]) -> Fragment:
    """Values by dotted keys; an empty dict counts as a value."""
    flat: Fragment = {}
    for key, value in nested.items():
        inner = flatten(value) if isinstance(value, Mapping) else {}
        flat |= {f"{key}.{name}": item for name, item in inner.items()} or {key: value}
    return flat


def nest(flat: Mapping[str, Any]) -> Fragment:
    """The nested dict of values by dotted keys."""
    nested: Fragment = {}
    for key, value in flat.items():
        *above, last = key.split(".")
        place = nested
        for part in above:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> Fragment:
    """Merge two fragments of a recipe; where both have a key, the second wins, and dicts are merged.

    Options belong to one data set, network, method or sampler: another `name` under `data` or `model` drops
    the options of the first one, another `method` drops `objective`, `branches` and `grid`, and a `kind` of
    sampler that is an import path drops those of another sampler.
    """
    merged = dict(first)
    if first.get("method", second.get("method")) != second.get("method", first.get("method")):
        merged = {key: value for key, value in first.items() if key not in _OF_METHOD}
    for key, value in second.items():
        old = merged.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            merged[key] = dict(value) if _is_another(key, old, value) else merge(old, value)
        else:
            merged[key] = value
    return merged


def _is_another(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a section names another data set, network or own sampler than before."""
    named = {"data": "name", "model": "name", "sampler": "kind"}.get(key, "")
    before, now = old.get(named), new.get(named, old.get(named))
    return before != now and (named == "name" or is_import_path(f"{before} {now}"))


def difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The keys at which two flat dicts differ, with both values; None stands for a missing one."""
    keys = dict.fromkeys([*first, *second])
    pairs = {key: (first.get(key), second.get(key)) for key in keys}
    return {key: (one, other) for key, (one, other) in pairs.items() if one != other}


def told_apart(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What differs between two nested dicts, as a message says it: `seed (1 instead of 0)`."""
    found = difference(flatten(old), flatten(new)).items()
    return first_few([f"{key} ({now} instead of {before})" for key, (before, now) in found], 3)
