"""What is known about every key of a recipe: what it takes, its default, its help."""

import json
import re
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from mmb.training.recipes.key_parser import HYPHEN, make_parser
from mmb.training.recipes.layers import with_presets
from mmb.training.recipes.nested import Fragment, flatten

_PLAIN = {int: "whole number", float: "number", bool: "true or false", str: "text", Path: "path"}


def key_help(fragment: Fragment) -> dict[str, dict[str, Any]]:
    """Every key of recipes with the method, data set and network of a fragment.

    Each has its `type` in words, its `choices` if they are few, its `default` (presets of the method and the
    data included) and its `help`.
    """
    merged = with_presets(fragment)
    presets = flatten(merged)
    found = {}
    for action in make_parser(merged)._actions:
        kind = getattr(action, "_typehint", None)
        if kind is None or action.dest.endswith(".help"):
            continue
        key = action.dest.replace(HYPHEN, "-")
        text, choices = describe_type(kind)
        default = json.loads(json.dumps(presets.get(key, action.default), default=str))
        help_text = _without_markup(action.help or "")
        found[key] = {"type": text, "choices": choices, "default": default, "help": help_text}
    return found


def describe_type(kind: Any) -> tuple[str, list[Any] | None]:
    """A type in words, and the values that it has if they are few."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(map(str, parts)), list(parts)
    if origin in (Union, types.UnionType):
        described = [describe_type(part) for part in parts if part is not type(None)]
        optional = len(described) < len(parts)
        choices = described[0][1] if len(described) == 1 else None
        text = " or ".join(dict.fromkeys(text for text, _ in described))
        return text + (" or null" if optional else ""), choices and [*choices, *([None] if optional else [])]
    if origin is tuple or (isinstance(origin, type) and issubclass(origin, Sequence)):
        item = describe_type(parts[0])[0]
        return f"list of {item}s" if item in _PLAIN.values() else f"list of {item}", None
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "mapping", None
    return _PLAIN.get(kind, getattr(kind, "__name__", str(kind))), None


def _without_markup(text: str) -> str:
    """A docstring's text as a terminal shows it."""
    text = re.sub(r"\[([^\]]+)\]\[[\w.]*\]", r"\1", text).replace("`", "")
    text = re.sub(r"\\(?:mathrm|text)\{([^}]*)\}", r"\1", text).replace("$", "").replace("\\", "")
    return " ".join(text.split())
