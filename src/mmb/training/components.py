"""The parts a recipe names: data sets, networks and objectives, as functions whose options can be read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import mmb.auc
from mmb import data, models
from mmb.auc import Labels, Objective
from mmb.data import Dataset, Inputs, registry
from mmb.training.presets import METHODS
from mmb.training.recipe import Recipe

NOT_OPTIONS = {"root", "labels", "model", "num_inputs", "channels", "num_tasks"}
"""Arguments of these functions that follow from the data rather than from the recipe."""


def data_loader(name: str) -> Callable[..., Dataset]:
    """The function that loads a data set.

    Raises:
        ValueError: If there is none of this name; the message names the nearest.
    """
    function: Callable[..., Dataset] = registry._module(name).load
    return function


def model_builder(name: str) -> Callable[..., nn.Module]:
    """The function that makes a network.

    Raises:
        ValueError: If there is none of this name; the message names the nearest.
    """
    if name != "mlp":
        raise ValueError(f"there is no network {name!r}")
    return models.mlp


def objective_class(method: str) -> Callable[..., Objective]:
    """The class of a method's objective."""
    found: Callable[..., Objective] = getattr(mmb.auc, METHODS[method].objective)
    return found


def load_data(section: Mapping[str, Any]) -> Dataset:
    """Load what the section ``data`` of a recipe names."""
    return data.load(section["name"], **_options(section))


def model_arguments(section: Mapping[str, Any], inputs: Inputs) -> dict[str, int]:
    """Arguments of a network that follow from the inputs: how many features or channels they have."""
    sample = inputs[torch.zeros(1, dtype=torch.int64)]
    taken = inspect.signature(model_builder(section["name"])).parameters
    width = {"num_inputs", "channels"} & taken.keys()
    return {name: sample.shape[1] for name in width if isinstance(sample, Tensor)}


def make_model(section: Mapping[str, Any], arguments: Mapping[str, int], num_tasks: int) -> nn.Module:
    """Make what the section ``model`` of a recipe names, to fit inputs and a number of tasks."""
    return model_builder(section["name"])(num_tasks=num_tasks, **{**_options(section), **arguments})


def make_objective(recipe: Recipe, labels: Labels, model: nn.Module) -> Objective:
    """Make the objective of a recipe's method."""
    made = objective_class(recipe.method)
    own = {"model": model} if "model" in inspect.signature(made).parameters else {}
    return made(labels, **own, **recipe.objective)


def _options(section: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key != "name"}
