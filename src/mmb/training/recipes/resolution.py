"""From fragments (files, presets, key=value) to a checked recipe, and back to plain data.

Types, defaults and help texts come from signatures and docstrings, by jsonargparse: of the settings in
`mmb.training.recipes.recipe`, and of the data set, network and objective that the recipe names.
"""

import inspect
import json
import re
from argparse import ArgumentError
from ast import literal_eval
from collections.abc import Callable, Container, Iterable, Mapping
from copy import deepcopy
from dataclasses import asdict, replace
from functools import cache, lru_cache
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mmb._extras import require
from mmb._import_paths import is_import_path
from mmb._key_meanings import no_such_key
from mmb.data.registry import reserved_arguments
from mmb.models.registry import FROM_DATA, START
from mmb.models.registry import builder as model_builder
from mmb.training.recipes.components import (
    NOT_OPTIONS,
    data_loader,
    has_parts,
    objective_class,
    sampler_class,
)
from mmb.training.recipes.layers import known_method, name_in, with_limit, with_presets
from mmb.training.recipes.nested import Fragment, flatten, merge, nest
from mmb.training.recipes.recipe import (
    SETTINGS,
    SHARED_START,
    OwnSampler,
    Recipe,
    RecipeError,
    SamplerSettings,
    SoupSettings,
)
from mmb.training.recipes.renamed import old_names

_HYPHEN = "\u2011"  # in names of parts: of a plain one in a key, jsonargparse makes an underscore
_QUOTES, _NULL = ("[", "'", '"'), ("", "~", "null", "Null", "NULL")  # of texts: read as YAML; none
_NAMES = ("method", "data", "data.name", "model", "model.name")
# Where fresh branches ended above the start, they were at most 0.03 below it halfway.
_STOP_BELOW, _STOP_FRESH_BELOW = 0.02, 0.05


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


def resolve(fragment: Fragment) -> Recipe:
    """Fill in presets and defaults, and check every key and value.

    Args:
        fragment: What is chosen; at least `method` and `data.name`.

    Returns:
        The recipe.

    Raises:
        RecipeError: If a key is not known (the nearest known one is named), or a value has the wrong type or
            is out of its range.
        ImportError: If a part of the recipe needs an optional extra.
    """
    merged = with_presets(fragment)
    for section in ("model", "objective", *SETTINGS):
        if not isinstance(merged.get(section, {}), Mapping):
            raise RecipeError(f"{section} must be a mapping of keys to values, got {merged[section]!r}")
    limit = (merged.get("training") or {}).get("max_fpr")
    if limit is not None:  # train for the metric that is reported
        merged = merge(
            {"objective": with_limit(merged["method"], merged.get("objective", {}), limit)}, merged
        )
    pretrain = merged.pop("pretrain", None)
    if pretrain is not None and not isinstance(pretrain, Mapping):
        raise RecipeError(f"pretrain must be a recipe, a mapping of keys to values, got {pretrain!r}")
    branches = merged.pop("branches", {})
    if not isinstance(branches, Mapping) or not all(isinstance(one, Mapping) for one in branches.values()):
        raise RecipeError(f"branches: expected a mapping of names to recipes, got {branches!r}")
    if merged.get("init_heads") and (pretrain is not None or merged.get("init_from") is not None):
        merged = merge({"training": {"warm_start": True}}, merged)  # there are scores to start from
    for message in old_names(merged):
        raise RecipeError(message)
    values = {"objective": {}, **_parsed(make_parser(merged), merged)}
    # What follows from the data, which is not loaded yet, stays open.
    model = values["model"].items()
    values["model"] = {k: value for k, value in model if k in merged["model"] or k not in FROM_DATA}
    values["data"] = _with_whole_paths(values["data"], data_loader(merged["data"]["name"]))
    values["init_from"] = _whole_path(values["init_from"])
    sections = {key: _section(key, values.pop(key)) for key in SETTINGS}
    try:
        recipe = Recipe(**_plain(values), **sections)
    except ValueError as error:
        raise RecipeError(str(error)) from error
    if branches and recipe.init_from is None:
        pretrain = merge({**_choices(fragment), "method": "ce"}, pretrain or {})
    if pretrain is not None:
        recipe = replace(recipe, pretrain=resolve(_first_phase(recipe, pretrain)))
    if not branches:
        return replace(recipe, soup=SoupSettings())  # there is nothing that it could be about
    made = {
        name: _branch(recipe, fragment, pretrain or {}, name, branch, number)
        for number, (name, branch) in enumerate(branches.items(), 1)
    }
    if all(branch.fresh for branch in made.values()):
        raise RecipeError("branches: at least one must begin at the start, without `fresh`")
    return replace(recipe, branches=made)


def _first_phase(recipe: Recipe, pretrain: Fragment) -> Fragment:
    """A first phase may train differently (also with another dropout), but on the same data and device."""
    shared = {"data": dict(recipe.data), "seed": recipe.seed}
    where = {key: getattr(recipe.training, key) for key in ("device", "precision", "tensorboard")}
    return merge(merge({"model": dict(recipe.model)}, pretrain), {**shared, "training": where})


def _with_whole_paths(options: Fragment, loader: Callable[..., Any]) -> Fragment:
    """Options of a data set with absolute paths; relative ones start at the current folder."""
    paths = _path_options(loader)
    return {key: _whole_path(value) if key in paths else value for key, value in options.items()}


def _whole_path(path: Any) -> Any:
    return path if path is None else str(Path(path).expanduser().absolute())


@cache
def _path_options(function: Callable[..., Any]) -> frozenset[str]:
    """Arguments of a function that may be paths."""
    return frozenset(name for name, kind in get_type_hints(function).items() if Path in get_args(kind))


def _choices(fragment: Fragment) -> Fragment:
    """What the phases of a recipe with branches have in common."""
    sections = ("data", "model", "sampler", "optimizer", "schedule", "training")
    return {key: fragment[key] for key in sections if key in fragment}


def _branch(
    recipe: Recipe, fragment: Fragment, pretrain: Fragment, name: str, branch: Fragment, number: int
) -> Recipe:
    """A branch of a recipe, whose method is its name unless it says otherwise.

    It also starts from the heads, with its block variables set by the scores of the start, and its step size
    falls to zero. A fresh one trains with the settings of the first phase.
    """
    if not re.fullmatch(r"[\w+.-]+", name) or name.startswith("."):
        raise RecipeError(f"branches: {name!r} cannot be the name of a folder: use letters, digits, + - _ .")
    if name == SHARED_START:
        raise RecipeError(f"branches: {name!r} is what all branches start from: give it another name")
    own: Fragment = {"method": name, "model": dict(recipe.model), "seed": 1000 * recipe.seed + number}
    if branch.get("fresh"):
        first = (recipe.pretrain or recipe).training.times(recipe.soup.fresh_share)
        like = {key: value for key, value in _first_phase(recipe, pretrain).items() if key != "objective"}
        training = {"epochs": first.epochs, "steps": first.steps, "stop_below": _STOP_FRESH_BELOW}
        defaults = merge(like, {**own, "training": training})
    else:
        first = recipe.training.times(recipe.soup.share)
        length = {"epochs": first.epochs, "steps": first.steps}
        training = {**length, "patience": None, "stop_below": _STOP_BELOW, "warm_start": True}
        schedule = {"name": "cosine", "warmup": 0}
        defaults = {**own, "schedule": schedule, "training": training, "init_heads": True}
    found = resolve(merge(merge(_choices(fragment), defaults), branch))
    if found.branches or found.pretrain is not None:
        raise RecipeError(f"branches.{name}: all branches have one start, so a branch has no phases")
    return found


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
    return _parser_for(loader, builder, objective, kinds, sampler)


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
        if key not in inspect.signature(builder).parameters:
            parser.add_argument(f"--model.{key}", type=str | None, default=None, help=meaning)
    for part, kind in parts:
        name = part.replace("-", _HYPHEN)
        parser.add_argument(f"--objective.parts.{name}.method", type=str, help="What this part trains for.")
        parser.add_argument(
            f"--objective.parts.{name}.weight", type=float, default=1.0, help="Relative to the first part."
        )
        parser.add_class_arguments(kind, f"objective.parts.{name}", skip=NOT_OPTIONS["objective"])
    parser.add_class_arguments(objective, "objective", skip=NOT_OPTIONS["objective"])
    return parser


def read_options(function: Callable[..., Any], overrides: Iterable[str], skip: set[str]) -> Fragment:
    """Read `key=value` texts as options of a function, except the ones to skip, and check them."""
    function = getattr(function, "__func__", function)
    parser = require("jsonargparse", extra="training").ArgumentParser(exit_on_error=False)
    parser.add_function_arguments(function, skip=skip)
    given = nest(dict(_parse_override(text, _text_options(function)) for text in overrides))
    values = _parsed(parser, given)
    return {key: values[key] for key in given}


def to_plain(recipe: Recipe) -> Fragment:
    """The recipe as plain data that can be written as YAML or JSON, and resolved to the same recipe."""
    plain: Fragment = _plain(asdict(replace(recipe, pretrain=None, branches={})))
    del plain["pretrain"], plain["branches"]
    if isinstance(recipe.sampler, OwnSampler):
        plain["sampler"] |= plain["sampler"].pop("options")
    if recipe.branches:
        plain["branches"] = {name: to_plain(branch) for name, branch in recipe.branches.items()}
    else:
        del plain["soup"]
    return plain if recipe.pretrain is None else {**plain, "pretrain": to_plain(recipe.pretrain)}


def _sampler(fragment: Fragment) -> Callable[..., Any]:
    """The class whose arguments are the keys of the section `sampler`: the settings, or a user's own."""
    kind = (fragment.get("sampler") or {}).get("kind")
    return sampler_class(kind) if isinstance(kind, str) and is_import_path(kind) else SamplerSettings


def _section(key: str, values: Fragment) -> Any:
    """One of `SETTINGS` as an object; the keys of a user's own sampler may be any."""
    if key == "sampler" and is_import_path(values["kind"]):
        return OwnSampler(values.pop("kind"), _plain(values))
    return SETTINGS[key](**values)


def _parsed(parser: Any, fragment: Fragment) -> Fragment:
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
        values: Fragment = parser.parse_object(_parts_renamed(fragment, "-", _HYPHEN)).as_dict()
    except ArgumentError as error:
        text = re.sub(r"<class '(?:\w+\.)*(\w+)'>|typing\.(Literal)", r"\1\2", str(error))
        text = text.replace("the following arguments are required:", "a value is needed for")
        text = text.replace("Parser key ", "").replace(_HYPHEN, "-")
        raise RecipeError(" ".join(text.split())) from error
    values = _parts_renamed(values, _HYPHEN, "-")
    return {key: value for key, value in values.items() if not key.startswith("__")}


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
    return {key.replace(_HYPHEN, "-"): value for key, value in found if key[:2] != "__"}


def _plain(value: Any) -> Any:
    """Tuples as lists, paths as texts."""
    return json.loads(json.dumps(value, default=str))
