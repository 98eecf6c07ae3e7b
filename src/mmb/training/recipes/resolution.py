"""From fragments (files, presets, key=value) to a checked recipe, and back to plain data."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from mmb._import_paths import is_import_path
from mmb.models.registry import FROM_DATA, START
from mmb.training.recipes.components import data_loader
from mmb.training.recipes.key_parser import make_parser, parse
from mmb.training.recipes.layers import with_limit, with_presets
from mmb.training.recipes.nested import Fragment, difference, flatten, merge
from mmb.training.recipes.presets import METHODS
from mmb.training.recipes.recipe import (
    SETTINGS,
    SHARED_START,
    OwnSampler,
    Recipe,
    RecipeError,
    SoupSettings,
)
from mmb.training.recipes.renamed import old_names

_NOT_WEIGHTS = ("dropout", *START)  # options of networks that say nothing about names and shapes of weights
# Where fresh branches ended above the start, they were at most 0.03 below it halfway.
_STOP_BELOW, _STOP_FRESH_BELOW = 0.02, 0.05


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
    _check_mappings(merged)
    pretrain, branches = merged.pop("pretrain", None), merged.pop("branches", {})
    if merged.get("init_heads") and (pretrain is not None or merged.get("init_from") is not None):
        merged = merge({"training": {"warm_start": True}}, merged)  # there are scores to start from
    _check_branches(merged["method"], branches)
    recipe = _single_phase(merged)
    if branches and recipe.init_from is None:
        pretrain = merge({**_choices(fragment), "method": "ce"}, pretrain or {})
    if pretrain is not None:
        first = resolve(_first_phase(recipe, pretrain))
        _check_network("pretrain", first, recipe)
        recipe = replace(recipe, pretrain=first)
    if not branches:
        return replace(recipe, soup=SoupSettings())  # there is nothing that it could be about
    made = {
        name: _branch(recipe, fragment, pretrain or {}, name, branch, number)
        for number, (name, branch) in enumerate(branches.items(), 1)
    }
    if all(branch.fresh for branch in made.values()):
        raise RecipeError("branches: at least one must begin at the start, without `fresh`")
    return replace(recipe, branches=made)


def _check_mappings(merged: Fragment) -> None:
    """Refuse a section, first phase or branch that is not a mapping."""
    for section in ("model", "objective", *SETTINGS):
        if not isinstance(merged.get(section, {}), Mapping):
            raise RecipeError(f"{section} must be a mapping of keys to values, got {merged[section]!r}")
    pretrain, branches = merged.get("pretrain"), merged.get("branches", {})
    if pretrain is not None and not isinstance(pretrain, Mapping):
        raise RecipeError(f"pretrain must be a recipe, a mapping of keys to values, got {pretrain!r}")
    if not isinstance(branches, Mapping) or not all(isinstance(one, Mapping) for one in branches.values()):
        raise RecipeError(f"branches: expected a mapping of names to recipes, got {branches!r}")


def _check_branches(method: str, branches: Fragment) -> None:
    """Refuse branches of a method that they would replace, and none where the method is about them."""
    known = [name for name, one in METHODS.items() if "branches" in one.defaults]
    if branches and method not in known:
        raise RecipeError(f"branches: the method {method!r} has none: remove them, or set method={known[0]}")
    if not branches and method in known:
        raise RecipeError(
            f"branches: the method {method!r} needs at least one, got none: name some, or leave the key out "
            "for those of the method"
        )


def _check_network(where: str, found: Recipe, recipe: Recipe) -> None:
    """Refuse a network with other weights for a phase of a recipe; what an own network has is not known."""
    if any(is_import_path(one.model["name"]) for one in (found, recipe)):
        return
    for key, (own, expected) in difference(flatten(found.model), flatten(recipe.model)).items():
        if key not in _NOT_WEIGHTS or (key == "dropout" and _layers_move(found, recipe)):
            raise RecipeError(
                f"{where}.model.{key}: expected {expected!r}, as in the run, got {own!r}: weights of all "
                "phases have the same names and shapes"
            )


def _layers_move(one: Recipe, other: Recipe) -> bool:
    """Whether only one of two perceptrons has layers of dropout, which rename those that follow."""
    shares = [recipe.model.get("dropout") for recipe in (one, other)]
    return one.model["name"] == "mlp" and 0 in shares and len(one.model.get("hidden", ())) > 1


def _single_phase(merged: Fragment) -> Recipe:
    """The recipe of a fragment that has its presets, and neither a first phase nor branches."""
    limit = (merged.get("training") or {}).get("max_fpr")
    if limit is not None:  # train for the metric that is reported
        objective = with_limit(merged["method"], merged.get("objective", {}), limit)
        merged = merge({"objective": objective}, merged)
    for message in old_names(merged):
        raise RecipeError(message)
    values = {"objective": {}, **parse(make_parser(merged), merged)}
    # What follows from the data, which is not loaded yet, stays open.
    model = values["model"].items()
    values["model"] = {k: value for k, value in model if k in merged["model"] or k not in FROM_DATA}
    values["data"] = _with_whole_paths(values["data"], data_loader(merged["data"]["name"]))
    values["init_from"] = _whole_path(values["init_from"])
    if values["model"].get("sha256") is not None and values["model"].get("weights") is None:
        raise RecipeError("model.sha256: got a checksum without a file of weights: set model.weights=FILE")
    sections = {key: _section(key, values.pop(key)) for key in SETTINGS}
    try:
        return Recipe(**_plain(values), **sections)
    except ValueError as error:
        raise RecipeError(str(error)) from error


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
    for key, (data, expected) in difference(flatten(found.data), flatten(recipe.data)).items():
        raise RecipeError(
            f"branches.{name}.data.{key}: expected {expected!r}, as in the run, got {data!r}: leave it out, "
            "since all branches have the data of the run"
        )
    _check_network(f"branches.{name}", found, recipe)
    return found


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


def _section(key: str, values: Fragment) -> Any:
    """One of `SETTINGS` as an object; the keys of a user's own sampler may be any."""
    if key == "sampler" and is_import_path(values["kind"]):
        return OwnSampler(values.pop("kind"), _plain(values))
    return SETTINGS[key](**values)


def _plain(value: Any) -> Any:
    """Tuples as lists, paths as texts."""
    return json.loads(json.dumps(value, default=str))
