"""The parts that a recipe names: data sets, networks and objectives."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from mmb import data
from mmb._import_paths import from_import_path
from mmb._signatures import arguments_of
from mmb.auc import Labels, Objective, Sampler
from mmb.auc.objective import as_objective_class
from mmb.data import Dataset
from mmb.models import registry as model_registry
from mmb.training.recipes.presets import method_of
from mmb.training.recipes.recipe import Recipe

NOT_OPTIONS = {
    "model": {"num_inputs", "num_tasks", "channels"},
    "objective": {"labels", "model", "parts", "names"},
    "sampler": {"labels", "generator"},
}
"""Arguments of these functions that do not come from the recipe; for data, see its `reserved_arguments`."""

PART_KEYS = ("method", "weight")
"""Keys of one of `objective.parts` that are not options of its objective."""


def data_loader(name: str) -> Callable[..., Dataset]:
    """The function that loads a data set, for its signature and docstring; call `load_data` instead."""
    load = data.loader(name)
    function: Callable[..., Dataset] = getattr(load, "__func__", load)  # jsonargparse reads no bound methods
    return function


def objective_class(method: str) -> type[Objective]:
    """The class of a method's objective."""
    return as_objective_class(from_import_path(method_of(method).objective), method)


def sampler_class(path: str) -> type[Sampler[Any]]:
    """The class of a user's own sampler."""
    found = from_import_path(path)
    if not (isinstance(found, type) and issubclass(found, Sampler)):
        raise ValueError(f"{path} is not a class derived from mmb.auc.Sampler")
    if lacking := ", ".join(sorted(found.__abstractmethods__)):
        raise ValueError(f"{path} lacks {lacking}: write it, as mmb.auc.Sampler says")
    return found


def load_data(section: Mapping[str, Any]) -> Dataset:
    """Load the data set of the section `data` of a recipe."""
    return data.load(section["name"], **{key: value for key, value in section.items() if key != "name"})


def complete_model(section: Mapping[str, Any], dataset: Dataset) -> dict[str, Any]:
    """The section `model` of a recipe with the options that follow from the data, without its weights."""
    options = model_registry.complete(dataset=dataset, **section)
    return {"name": section["name"], **{k: v for k, v in options.items() if k not in model_registry.START}}


def has_parts(method: str) -> bool:
    """Whether a method is made of others, which a recipe states as `objective.parts`."""
    return "parts" in arguments_of(objective_class(method))


def chosen_objectives(recipe: Recipe) -> list[tuple[type[Objective], Mapping[str, Any]]]:
    """The classes of objectives that a recipe trains for, with their options: one, or the parts of a sum."""
    if not has_parts(recipe.method):
        return [(objective_class(recipe.method), recipe.objective)]
    return [
        (objective_class(part["method"]), {k: v for k, v in part.items() if k not in PART_KEYS})
        for part in recipe.objective["parts"].values()
    ]


def weights_per_task(recipe: Recipe) -> bool:
    """Whether an objective of a recipe evaluates every task with its own weights."""
    return any(kind.weights_per_task for kind, _ in chosen_objectives(recipe))


def make_objective(recipe: Recipe, labels: Labels, model: nn.Module) -> Objective:
    """Make the objective of a recipe's method."""
    made = [_make(kind, options, labels, model) for kind, options in chosen_objectives(recipe)]
    if not has_parts(recipe.method):
        return made[0]
    parts, options = recipe.objective["parts"], {k: v for k, v in recipe.objective.items() if k != "parts"}
    weighed = [(part["weight"], one) for part, one in zip(parts.values(), made, strict=True)]
    kind: Callable[..., Objective] = objective_class(recipe.method)
    return kind(weighed, names=list(parts), **options)


def _make(
    kind: Callable[..., Objective], options: Mapping[str, Any], labels: Labels, model: nn.Module
) -> Objective:
    own = {"model": model} if "model" in arguments_of(kind) else {}
    return kind(labels, **own, **options)
