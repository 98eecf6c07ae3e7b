"""Which keys a recipe has and what they take.

Types, defaults and help texts come from signatures and docstrings, by jsonargparse: of the settings in
`mmb.training.recipes.recipe`, and of the data set, network and objective that the recipe names.
"""

import re
from argparse import ArgumentError
from ast import literal_eval
from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache
from typing import Any

from mmb._extras import require
from mmb._import_paths import is_import_path
from mmb._key_meanings import no_such_key
from mmb._signatures import arguments_of
from mmb.data.registry import reserved_arguments
from mmb.models.registry import START
from mmb.models.registry import builder as model_builder
from mmb.training.recipes.components import (
    NOT_OPTIONS,
    data_loader,
    has_parts,
    objective_class,
    sampler_class,
)
from mmb.training.recipes.layers import known_method, name_in
from mmb.training.recipes.nested import Fragment, flatten
from mmb.training.recipes.recipe import Recipe, RecipeError, SamplerSettings

_UNION = re.compile(
    r"Does not validate against any of the Union subtypes Subtypes: \[(?P<kinds>.*)\] Errors: .* "
    r"Given value type: \S+ Given value: (?P<value>.*)"
)
HYPHEN = "\u2011"  # in names of parts: jsonargparse would turn a plain hyphen in a key into an underscore


def make_parser(fragment: Fragment) -> Any:
    """A parser (jsonargparse) that knows every key of recipes with this method, data set and network."""
    try:
        loader, builder = data_loader(name_in(fragment, "data")), model_builder(name_in(fragment, "model"))
        sampler = _sampler(fragment)
    except ValueError as error:
        raise RecipeError(str(error)) from error
    objective: Callable[..., Any] = objective_class(fragment["method"])
    parts = fragment["objective"]["parts"] if has_parts(fragment["method"]) else {}
    kinds = tuple((name, objective_class(known_method(part["method"]))) for name, part in parts.items())
    try:
        return _parser_for(loader, builder, objective, kinds, sampler)
    except ValueError as error:  # of jsonargparse, about arguments that no key can be made for
        raise RecipeError(_about_types(str(error))) from error


def _about_types(message: str) -> str:
    """What jsonargparse says of an argument without a type, in the words of this library."""
    found = re.search(r"Parameter '(\w+)' from '([^']+)' does not specify a type", message)
    if found is None:
        return message
    argument, place = found.groups()
    return (
        f"the argument {argument!r} of {place} has neither a type nor a default, so its value in a recipe "
        f"cannot be checked: write a type, such as `{argument}: int`"
    )


@lru_cache(maxsize=64)  # studies resolve hundreds of recipes with a few of these
def _parser_for(
    loader: Callable[..., Any],
    builder: Callable[..., Any],
    objective: Callable[..., Any],
    parts: tuple[tuple[str, Callable[..., Any]], ...],
    sampler: Callable[..., Any],
) -> Any:
    parser = require("jsonargparse", extra="training").ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Recipe, skip={"data", "model", "objective", "sampler", "pretrain", "branches"})
    if sampler is not SamplerSettings:
        parser.add_argument("--sampler.kind", type=str, help="Which sampler.")
    parser.add_class_arguments(sampler, "sampler", skip=NOT_OPTIONS["sampler"])
    parser.add_argument("--data.name", type=str, help="Which data set.")
    parser.add_function_arguments(loader, "data", skip=reserved_arguments(loader))
    parser.add_argument("--model.name", type=str, help="Which network.")
    parser.add_function_arguments(builder, "model", skip=NOT_OPTIONS["model"])
    for key, meaning in START.items():
        if key not in arguments_of(builder):
            parser.add_argument(f"--model.{key}", type=str | None, default=None, help=meaning)
    for part, kind in parts:
        name = part.replace("-", HYPHEN)
        parser.add_argument(f"--objective.parts.{name}.method", type=str, help="What this part trains for.")
        parser.add_argument(
            f"--objective.parts.{name}.weight", type=float, default=1.0, help="Relative to the first part."
        )
        parser.add_class_arguments(kind, f"objective.parts.{name}", skip=NOT_OPTIONS["objective"])
    parser.add_class_arguments(objective, "objective", skip=NOT_OPTIONS["objective"])
    return parser


def _sampler(fragment: Fragment) -> Callable[..., Any]:
    """The class whose arguments are the keys of the section `sampler`: the settings, or a user's own."""
    kind = (fragment.get("sampler") or {}).get("kind")
    return sampler_class(kind) if isinstance(kind, str) and is_import_path(kind) else SamplerSettings


def parse(parser: Any, fragment: Fragment) -> Fragment:
    """A fragment with all defaults, and every key and type checked."""
    defaults = _defaults(parser)
    for key, value in flatten(fragment).items():
        # A grid names keys of the recipe; several, with spaces, take the same value.
        for name in key.removeprefix("grid.").split() if key.startswith("grid.") else [key]:
            if name not in defaults and not any(known.startswith(f"{name}.") for known in defaults):
                raise RecipeError(no_such_key(name, list(defaults)))
        if value is None and defaults.get(key) is not None:  # jsonargparse takes null for any type
            raise RecipeError(f"{key}: expected a value, got null; its default is {defaults[key]}")
    try:
        return deepcopy(_checked_before(parser, repr(fragment)))
    except _NotPlainError:
        return _checked(parser, fragment)


class _NotPlainError(Exception):
    """A fragment has values other than texts, numbers, lists and the like."""


@lru_cache(maxsize=1024)  # checking takes 20 ms, and studies compare hundreds of logs with a few recipes
def _checked_before(parser: Any, text: str) -> Fragment:
    try:
        fragment = literal_eval(text)
    except (ValueError, SyntaxError):
        raise _NotPlainError from None
    return _checked(parser, fragment)


def _checked(parser: Any, fragment: Fragment) -> Fragment:
    """A fragment with all defaults, after jsonargparse checked its types."""
    try:
        values: Fragment = parser.parse_object(_parts_renamed(fragment, "-", HYPHEN)).as_dict()
    except ArgumentError as error:
        text = re.sub(r"<class '(?:\w+\.)*(\w+)'>|typing\.(Literal)", r"\1\2", str(error))
        text = text.replace("the following arguments are required:", "a value is needed for")
        text = text.replace("Parser key ", "").replace(HYPHEN, "-")
        raise RecipeError(_UNION.sub(_expected, " ".join(text.split()))) from error
    values = _parts_renamed(values, HYPHEN, "-")
    return {key: value for key, value in values.items() if not key.startswith("__")}


def _expected(found: re.Match[str]) -> str:
    """What a value of one of several types has to be, and what it is."""
    kinds = re.split(r", (?![^\[]*\])", found["kinds"].replace("collections.abc.", ""))
    expected = " or ".join("null" if kind == "NoneType" else kind for kind in kinds)
    return f"expected {expected}, got {found['value']}"


def _parts_renamed(fragment: Fragment, old: str, new: str) -> Fragment:
    """A fragment with other letters in the names of the parts of a sum."""
    objective = fragment.get("objective") or {}
    if "parts" not in objective:
        return fragment
    parts = {name.replace(old, new): part for name, part in objective["parts"].items()}
    return {**fragment, "objective": {**objective, "parts": parts}}


@lru_cache(maxsize=64)
def _defaults(parser: Any) -> dict[str, Any]:
    """The default of every key that a parser knows."""
    found = parser.get_defaults().items(branches=False)
    return {key.replace(HYPHEN, "-"): value for key, value in found if key[:2] != "__"}
