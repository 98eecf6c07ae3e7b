"""A fragment of a recipe on top of the presets of its data set, network and method."""

import inspect
from collections.abc import Mapping
from typing import Any

from mmb._import_paths import is_import_path
from mmb._names import nearest
from mmb.auc.sum import check_names
from mmb.training.recipes.components import has_parts, objective_class
from mmb.training.recipes.nested import Fragment, merge
from mmb.training.recipes.presets import (
    DEFAULT_PARTS,
    METHODS,
    NETWORKS,
    for_data,
    for_inputs,
    method_of,
)
from mmb.training.recipes.recipe import RecipeError

_LIMITS = ("max_fpr", "fpr")  # names of the false positive rate up to which, or at which, objectives train


def with_presets(fragment: Fragment) -> Fragment:
    """The fragment on top of the presets of its method and data set."""
    method = known_method(fragment.get("method"))
    name = name_in(fragment, "data")
    presets: Fragment = {"data": {"name": name}}
    chosen = fragment.get("model")
    network = chosen.get("name") if isinstance(chosen, Mapping) else None
    for part in (for_data(name, network), method_of(method).defaults):
        presets = merge(presets, part)
    if has_parts(method):
        presets = _with_parts(presets, fragment)
    if "branches" in fragment:
        presets.pop("branches", None)  # a recipe's own branches replace those of its method
    training = fragment.get("training")
    if isinstance(training, Mapping) and "epochs" in training and "training" in presets:
        presets["training"] = {key: value for key, value in presets["training"].items() if key != "steps"}
    merged = merge(presets, fragment)
    merged = merge(for_inputs(merged["data"]), merged)
    return merge(NETWORKS.get(name_in(merged, "model"), {}), merged)


def known_method(method: Any) -> str:
    """A method by its name or the import path of its objective; RecipeError if it does not exist."""
    if isinstance(method, str) and is_import_path(method):
        try:
            objective_class(method)
        except ValueError as error:
            raise RecipeError(str(error)) from error
        return method
    if not isinstance(method, str) or method not in METHODS:
        raise RecipeError(f"there is no method {method!r}{nearest(str(method), METHODS)}")
    return method


def _with_parts(presets: Fragment, fragment: Fragment) -> Fragment:
    """Presets of a sum: those of its parts, whose names are their methods unless they say otherwise."""
    objectives = [one.get("objective") for one in (presets, fragment)]
    stated: Fragment = {}
    for objective in objectives:
        parts = objective.get("parts") if isinstance(objective, Mapping) else None
        if parts is None:
            continue
        if not isinstance(parts, Mapping) or not all(isinstance(part, Mapping) for part in parts.values()):
            raise RecipeError(f"objective.parts: expected a mapping of names to options, got {parts!r}")
        _check_part_names(parts)
        stated = merge(stated, parts)
    stated = stated or DEFAULT_PARTS
    if len(stated) < 2:
        raise RecipeError(f"objective.parts: expected at least two, got {', '.join(stated)}")
    found: Fragment = {}
    for name, part in stated.items():
        method = known_method(part.get("method", name))
        if has_parts(method):
            raise RecipeError(f"objective.parts.{name}: a sum cannot be part of a sum")
        own = dict(method_of(method).defaults)
        options = {"method": method, "weight": 1.0, **own.pop("objective", {}), **part}
        found = merge(found, {**own, "objective": {"parts": {name: options}}})
    return merge(found, presets)


def _check_part_names(parts: Mapping[Any, Any]) -> None:
    """Refuse names that cannot be those of modules, or be part of a key."""
    try:
        check_names(list(parts))
    except ValueError as error:
        raise RecipeError(f"objective.parts: {error}") from error
    for name in parts:
        if any(letter.isspace() for letter in name):
            raise RecipeError(f"objective.parts: expected names without spaces, got {name!r}")


def with_limit(method: str, objective: Fragment, limit: Any) -> Fragment:
    """A false positive rate for the objective of a method, or for its parts, where they have one."""
    if has_parts(method):
        return {"parts": {n: with_limit(part["method"], {}, limit) for n, part in objective["parts"].items()}}
    options = inspect.signature(objective_class(method)).parameters
    return {name: limit for name in _LIMITS if name in options}


def name_in(fragment: Fragment, section: str) -> str:
    """The name of the data set or network of a fragment; RecipeError if it has none."""
    value = fragment.get(section)
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise RecipeError(f"{section}.name is missing: write it as `{section}: {{name: ...}}`, got {value!r}")
    return str(value["name"])
