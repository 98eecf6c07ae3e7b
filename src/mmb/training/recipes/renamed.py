"""Keys and values of recipes that had another name in an earlier version.

A recipe with an old name is refused with a message that gives the new one. Recipes that an earlier version
stored in the folder of a run are translated when they are read. Options that were added later are set so that
the run stays what it was.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from mmb.training.recipes.nested import Fragment, flatten

# A key never moves to another section.
_KEYS = {"objective.scores": "objective.transform"}
_KEYS_OF_METHOD = {"sopa-s": {"objective.momentum": "objective.beta"}}
_VALUES = {"objective.transform": {"recentred": "recentered"}}  # by new keys
# What an option of an objective or a network has to be so that a run without it is what it was.
_UNANCHORED = {"anchor": 0.0}
_LATER_OPTIONS: dict[str, dict[str, float]] = {
    **dict.fromkeys(("auc", "auc-ct-heads", "pauc", "pauc-full", "sopa-s"), _UNANCHORED),
    "pauc-pairwise": {**_UNANCHORED, "unit": 1.0},
}
_LATER_OPTIONS_OF_NETWORKS: dict[str, dict[str, float]] = {"mlp": {"ranges": 0}}
_LATER_OPTIONS_OF_SOUPS: dict[str, float] = {"still_rising": 1, "still_gaining": 1}


def old_names(fragment: Mapping[str, Any]) -> Iterator[str]:
    """A message for each old name in a fragment."""
    for key, value in flatten(fragment).items():
        key = key.removeprefix("grid.")
        new_key, new_value = _renamed(key, value, fragment.get("method"))
        if new_key != key:
            yield f"the key {key!r} is now {new_key!r}"
        elif str(new_value) != str(value):
            yield f"{key}: the value {value!r} is now {new_value!r}"


def translate(stored: Mapping[str, Any]) -> Fragment:
    """A recipe that an earlier version stored, in the names of this one, with the options it lacks."""
    method = stored.get("method")
    fresh = dict(stored)
    for section, options in stored.items():
        if not isinstance(options, Mapping):
            continue
        if section == "pretrain":
            fresh[section] = translate(options)
        elif section == "branches":
            fresh[section] = {name: translate(branch) for name, branch in options.items()}
        elif section == "grid":
            fresh[section] = dict(_renamed(keys, values, method) for keys, values in options.items())
        else:
            named = [_renamed(f"{section}.{name}", value, method) for name, value in options.items()]
            fresh[section] = {key.removeprefix(f"{section}."): value for key, value in named}
    later = {"objective": _LATER_OPTIONS.get(str(method), {})}
    if "soup" in fresh:
        later["soup"] = _LATER_OPTIONS_OF_SOUPS
    model = fresh.get("model")
    if isinstance(model, Mapping):
        later["model"] = _LATER_OPTIONS_OF_NETWORKS.get(str(model.get("name")), {})
    added = {section: {**options, **fresh.get(section, {})} for section, options in later.items() if options}
    return {**fresh, **added}


def _renamed(keys: str, value: Any, method: Any) -> tuple[str, Any]:
    """The new names of a key, or several with spaces, and of its value or list of values."""
    new_keys = _KEYS | _KEYS_OF_METHOD.get(str(method), {})
    names = [new_keys.get(key, key) for key in keys.split()]
    new_values = {old: new for name in names for old, new in _VALUES.get(name, {}).items()}
    if isinstance(value, list):
        return " ".join(names), [new_values.get(str(one), one) for one in value]
    return " ".join(names), new_values.get(str(value), value)
