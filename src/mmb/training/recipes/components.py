"""The parts that a recipe names: data sets, networks and objectives."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from mmb import data
from mmb.auc import Labels, Objective
from mmb.data import Dataset
from mmb.models import registry as model_registry
from mmb.training.recipes.presets import METHODS
from mmb.training.recipes.recipe import Recipe

NOT_OPTIONS = {
    "data": {"self", "root"},
    "model": {"num_inputs", "num_tasks", "channels"},
    "objective": {"labels", "model"},
}
"""Arguments of these functions that do not come from the recipe."""


def data_loader(name: str) -> Callable[..., Dataset]:
    """The function that loads a data set, for its signature and docstring; call `load_data` instead."""
    load = data.loader(name)
    function: Callable[..., Dataset] = getattr(load, "__func__", load)  # jsonargparse reads no bound methods
    return function


def objective_class(method: str) -> type[Objective]:
    """The class of a method's objective."""
    module, _, name = METHODS[method].objective.partition(":")
    return getattr(importlib.import_module(module), name)


def load_data(section: Mapping[str, Any]) -> Dataset:
    """Load the data set of the section `data` of a recipe."""
    return data.load(**section)


def complete_model(section: Mapping[str, Any], dataset: Dataset) -> dict[str, Any]:
    """The section `model` of a recipe with the options that follow from the data."""
    return {"name": section["name"], **model_registry.complete(dataset=dataset, **section)}


def make_objective(recipe: Recipe, labels: Labels, model: nn.Module) -> Objective:
    """Make the objective of a recipe's method."""
    kind: Callable[..., Objective] = objective_class(recipe.method)
    own = {"model": model} if "model" in inspect.signature(kind).parameters else {}
    return kind(labels, **own, **recipe.objective)
