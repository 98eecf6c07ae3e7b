"""Choices on the command line: `key=value` texts become a fragment of a recipe."""

from collections.abc import Callable, Container, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mmb._extras import require
from mmb.models.registry import START
from mmb.training.recipes.components import data_loader
from mmb.training.recipes.key_parser import parse
from mmb.training.recipes.layers import name_in
from mmb.training.recipes.nested import Fragment, merge, nest
from mmb.training.recipes.recipe import SETTINGS, Recipe, RecipeError

_QUOTES, _NULL = ("[", "'", '"'), ("", "~", "null", "Null", "NULL")  # of texts: read as YAML; none
_NAMES = ("method", "data", "data.name", "model", "model.name")


def with_overrides(fragment: Fragment, overrides: Iterable[str]) -> Fragment:
    """Put `key=value` texts with dotted keys, such as `optimizer.lr=0.01`, on top of a fragment.

    Args:
        fragment: What is chosen so far.
        overrides: The texts. Values are YAML; where a key takes a text, they stay as they are.

    Returns:
        A new fragment, not checked yet.

    Raises:
        RecipeError: If there is no `=` in a text, or its value cannot be read.
    """
    overrides = list(overrides)
    keys = [text.partition("=")[0] for text in overrides]
    if "training.epochs" in keys and "training.steps" not in keys:
        fragment = merge(fragment, {"training": {"steps": None}})  # which would count instead
    # names first: the types of other keys, and whether they are kept, follow from them
    for text in sorted(overrides, key=lambda text: text.partition("=")[0] not in _NAMES):
        fragment = merge(fragment, nest(dict([_parse_override(text, _text_keys(fragment))])))
    return fragment


def read_options(function: Callable[..., Any], overrides: Iterable[str], skip: set[str]) -> Fragment:
    """Read `key=value` texts as options of a function, except the ones to skip, and check them."""
    function = getattr(function, "__func__", function)
    parser = require("jsonargparse", extra="training").ArgumentParser(exit_on_error=False)
    parser.add_function_arguments(function, skip=skip)
    given = nest(dict(_parse_override(text, _text_options(function)) for text in overrides))
    values = parse(parser, given)
    return {key: values[key] for key in given}


def _parse_override(text: str, texts: Container[str]) -> tuple[str, Any]:
    """The key and value in a `key=value` text; the values of `texts` stay texts."""
    yaml = require("yaml", extra="training")
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise RecipeError(f"expected key=value, got {text!r}")
    plain = value.strip()
    if key in texts and not plain.startswith(_QUOTES):  # whatever YAML would make of it
        return key, None if plain in _NULL else plain
    try:
        parsed = yaml.safe_load(value)
        if key in texts and parsed is not None:
            parsed = yaml.load(value, Loader=yaml.BaseLoader)  # all scalars as they are written
    except (yaml.YAMLError, ValueError) as error:  # the latter for impossible dates
        raise RecipeError(
            f"the value of {key} cannot be read: {value!r}; if it is a text, put it in quotes"
        ) from error
    return key, parsed


def _text_keys(fragment: Fragment) -> set[str]:
    """Keys of recipes with the data set of a fragment whose values are texts, or lists of texts."""
    found = {*_text_options(Recipe), *(f"model.{key}" for key in START)}
    for name, settings in SETTINGS.items():
        found |= {f"{name}.{key}" for key in _text_options(settings)}
    try:
        loader = data_loader(name_in(fragment, "data"))
    except ValueError:  # `resolve` reports it
        return found
    return found | {f"data.{key}" for key in _text_options(loader)}


@cache
def _text_options(function: Callable[..., Any]) -> frozenset[str]:
    """Arguments of a function, or fields of a class, that are texts, or lists of texts."""
    return frozenset(name for name, kind in get_type_hints(function).items() if _is_text(kind))


def _is_text(kind: Any) -> bool:
    arguments = [part for part in get_args(kind) if part not in (NoneType, Path, ...)]
    if get_origin(kind) in (Literal, Mapping, dict) or not arguments:
        return kind is str
    return all(_is_text(part) for part in arguments)
