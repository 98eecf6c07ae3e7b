"""Values to try when tuning a recipe without a grid: those of the paper, for each method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmb.training.recipes.recipe import Recipe

Grid = Mapping[str, list[Any]]

_AUC_RATES = [0.01, 0.03, 0.05, 0.07, 0.1]  # of weights and of block variables
_AUC_MOMENTUM = {"optimizer.momentum": [0.9, 0.5, 0.1]}
_COMMON: Grid = {
    "optimizer.lr": [0.0001, 0.0005, 0.001, 0.005, 0.01],
    "optimizer.momentum": [0.1, 0.01],
}
_PARTIAL: Grid = {
    **_COMMON,
    "objective.lr_dual": [0.5, 0.1, 0.01],
    "objective.lr_threshold": [0.5, 0.1, 0.01],
    "objective.beta": [0.99, 0.9, 0.5, 0.1, 0.01],
}

GRIDS: dict[str, Grid] = {
    "auc": {"optimizer.lr objective.lr_dual": _AUC_RATES, **_AUC_MOMENTUM},
    "auc-ct": {
        "optimizer.lr objective.lr_dual objective.lr_lower": _AUC_RATES,
        **_AUC_MOMENTUM,
        "objective.inner_lr": [0.1, 0.5, 0.9],
    },
    "focal": {**_COMMON, "objective.gamma": [1, 2, 4], "objective.alpha": [0.25, 0.5, 0.75]},
    "pauc": _PARTIAL,
    "pauc-full": _PARTIAL,
    "sopa-s": {**_COMMON, "objective.beta": [0.9, 0.99], "objective.temperature": [0.1, 1, 10]},
}
"""Grids of the methods that have more to tune than the optimizer."""


def grid_of(recipe: Recipe) -> Grid:
    """The values to try for a recipe: its own grid, or the paper's for its method.

    A key names one key of the recipe, or several, with spaces, that take the same value. The paper's grids
    are without the momentum if the optimizer has none.
    """
    if recipe.grid:
        return recipe.grid
    grid = GRIDS.get(recipe.method, _COMMON)
    if recipe.optimizer.name in ("momentum", "sgd"):
        return grid
    return {key: values for key, values in grid.items() if key != "optimizer.momentum"}
