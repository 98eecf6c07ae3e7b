"""What a study is about: `study.yaml` in its folder, read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from mmb._extras import require
from mmb.training.recipes.nested import Fragment, merge
from mmb.training.recipes.presets import METHODS
from mmb.training.recipes.recipe import Recipe
from mmb.training.recipes.resolution import RecipeError, read_recipe, resolve

METRICS = {"auc": "AUC", "pauc": "pAUC", "ap": "AP"}
"""Metrics of the tables, and what they are called there."""

_ABOUT = "study.yaml"
_COMPARE = ("rows", "steps")


@dataclass(frozen=True)
class Study:
    """What is run, and what it is compared with.

    Attributes:
        name: Data set and table, such as `molpcba/table2`.
        title: Heading.
        metric: The metric it is about.
        recipes: Recipe file of each row, in the order of the table.
        titles: What rows are called, where that is not the title of their method.
        paper: What the paper reports for a row, as text.
        notes: What explains the differences.
        choices: For each row the changes to its recipe that are tried, equally many for all rows; the best on
            the validation rows is taken. None are tried if empty.
        choose_seed: Seed of the runs that try them; none of the table.
        compare: What rows have in common beside data and network: `"rows"`, rows per step and steps; or
            `"steps"`, steps alone, where the number of rows per step is what is studied.
        panels: Rows to be drawn together, by the title of their panel; drawn over steps. If empty, all rows
            are drawn together, over epochs and seconds.
    """

    name: str
    title: str
    metric: str
    recipes: Mapping[str, Path]
    titles: Mapping[str, str]
    paper: Mapping[str, str]
    notes: str
    choices: Mapping[str, Sequence[Fragment]]
    choose_seed: int
    compare: str
    panels: Mapping[str, Sequence[str]]

    @classmethod
    def read(cls, folder: Path, name: str) -> Study:
        """Read a study.

        Args:
            folder: Where studies are.
            name: Data set and table.

        Raises:
            RecipeError: If there is no such study, it lacks something, or its rows have not equally many
                choices.
        """
        path = folder / name / _ABOUT
        if not path.exists():
            known = ", ".join(names(folder))
            raise RecipeError(f"there is no study {name} in {folder} (no {path}); there are: {known}")
        about = require("yaml", extra="training").safe_load(path.read_text(encoding="utf-8"))
        try:
            study = cls(
                name,
                about["title"],
                about["metric"],
                {row: path.parent / f"{row}.yaml" for row in about["rows"]},
                about.get("titles", {}),
                {row: str(value) for row, value in about.get("paper", {}).items()},
                about["notes"].strip(),
                about.get("choices", {}),
                about.get("choose_seed", 100),
                about.get("compare", _COMPARE[0]),
                about.get("panels", {}),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise RecipeError(f"{path} lacks {error}") from error
        study._check(path)
        return study

    def _check(self, path: Path) -> None:
        for key, value, known in (("metric", self.metric, METRICS), ("compare", self.compare, _COMPARE)):
            if value not in known:
                raise RecipeError(f"{path}: {key} must be one of {', '.join(known)}, got {value!r}")
        for row in chain(self.choices, *self.panels.values()):
            self.check_row(row, str(path))
        tried = {row: len(self.choices.get(row, ())) for row in self.recipes}
        if len(set(tried.values())) > 1:
            counts = ", ".join(f"{row} {count}" for row, count in tried.items())
            raise RecipeError(f"{path}: all rows must have equally many choices, got {counts}")

    def check_row(self, row: str, where: str) -> None:
        """Refuse what is no row of this study.

        Raises:
            RecipeError: Naming the rows there are.
        """
        if row not in self.recipes:
            raise RecipeError(f"{where}: {self.name} has no row {row!r}; rows are {', '.join(self.recipes)}")

    def title_of(self, row: str, method: str) -> str:
        """What a row is called, whose recipe has this method."""
        return self.titles.get(row, METHODS[method].title)

    def recipe(self, row: str, seed: int, change: Mapping[str, Any] | None = None) -> Recipe:
        """The recipe of a row.

        Args:
            row: The row.
            seed: Its seed.
            change: What is changed in its file.

        Raises:
            RecipeError: If a key or a value is wrong.
        """
        return resolve(merge(merge(read_recipe(self.recipes[row]), change or {}), {"seed": seed}))


def names(folder: Path) -> list[str]:
    """All studies in a folder."""
    return sorted(str(path.parent.relative_to(folder)) for path in folder.glob(f"*/*/{_ABOUT}"))


def with_logs(folder: Path, results: Path) -> list[Study]:
    """All studies in a folder of which a finished run has its log in `results`."""
    return [
        Study.read(folder, name)
        for name in names(folder)
        if any((results / name).glob("*/seed-*/result.json"))
    ]
