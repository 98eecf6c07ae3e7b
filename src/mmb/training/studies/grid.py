"""The grid of a recipe: values to try by key, and the numbers of their combinations."""

from collections.abc import Mapping
from itertools import product
from typing import Any

from mmb.training.recipes.nested import merge, nest
from mmb.training.recipes.recipe import Recipe, RecipeError
from mmb.training.recipes.resolution import resolve, to_plain


class Grid:
    """All combinations of the values of a grid.

    A combination is `places`, the place of its value in the list of each key (which is what Optuna knows), or
    a number.

    Args:
        values: The values to try by key, as from `check_grid`.
    """

    def __init__(self, values: Mapping[str, list[Any]]) -> None:
        self._values = values
        self._combinations = list(product(*self.choices.values()))
        self._numbers = {combination: number for number, combination in enumerate(self._combinations)}

    def __len__(self) -> int:
        return len(self._combinations)

    @property
    def choices(self) -> dict[str, range]:
        """The places of the values of each key."""
        return {key: range(len(values)) for key, values in self._values.items()}

    def values(self, places: Mapping[str, int]) -> dict[str, Any]:
        """The values of a combination."""
        return {key: values[places[key]] for key, values in self._values.items()}

    def number(self, places: Mapping[str, int]) -> int:
        """The number of a combination."""
        return self._numbers[tuple(places[key] for key in self._values)]

    def places(self, number: int) -> dict[str, int]:
        """The combination with a number."""
        return dict(zip(self._values, self._combinations[number], strict=True))


def check_grid(recipe: Recipe) -> dict[str, list[Any]]:
    """The values to try by key, each once; RecipeError if a value is not what its key takes."""
    if recipe.branches:
        raise RecipeError(
            f"method {recipe.method} has branches, which are not tuned together: tune the method of a "
            "branch, and state what is best in the branches of the recipe"
        )
    grid: dict[str, list[Any]] = {}
    for key, values in recipe.grid.items():
        if not isinstance(values, list) or not values:
            raise RecipeError(f"grid: {key!r} needs a list of values to try, got {values!r}")
        for value in values:
            with_values(recipe, {key: value})
        grid[key] = [value for place, value in enumerate(values) if value not in values[:place]]
    if not grid:
        raise RecipeError("there is nothing to tune: give the recipe a grid")
    return grid


def with_values(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with some values of its grid, by keys as in the grid: one key, or several, with spaces."""
    chosen = nest({key: value for keys, value in values.items() for key in keys.split()})
    return resolve(merge(to_plain(recipe), chosen))
