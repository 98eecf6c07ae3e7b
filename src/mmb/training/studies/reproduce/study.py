"""What a study is about: `study.yaml` in its folder, read and checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from mmb._extras import require
from mmb.metrics import METRICS, MetricName
from mmb.training.recipes.nested import Fragment, merge
from mmb.training.recipes.presets import method_of
from mmb.training.recipes.reading import read_recipe
from mmb.training.recipes.recipe import Recipe, RecipeError
from mmb.training.recipes.resolution import resolve

_ABOUT = "study.yaml"
_COMPARE = ("rows", "steps", "data")


@dataclass(frozen=True)
class TableStudy:
    """What a table is about: which recipes are run, and what they are compared with.

    Attributes:
        name: Data set and table, such as `molpcba/table2`.
        title: Heading.
        metric: The metric it is about.
        recipes: Recipe file of each row, in the order of the table.
        change: Change to the recipes of all rows and to their first phases.
        notes: What explains the differences.
        titles: Titles of rows that differ from the title of their method.
        paper: What the paper reports for a row.
        choices: For each row the changes to its recipe that are tried, as many for each row; the best on the
            validation rows is taken. Nothing is tried if empty.
        choose_seed: Seed of the runs that try them; the table does not use it.
        choosing: Change to these runs and to their first phases, such as fewer epochs.
        compare: What rows have in common besides data and network: `"rows"`, rows per step and steps; or
            `"steps"`, epochs or steps alone, if the number of rows per step is what is studied, and rows may
            do without the first phase; or `"data"`, neither network nor length.
        panels: Rows to be drawn together, by the title of their panel; drawn over steps. If empty, all rows
            are drawn together, over epochs and seconds.
    """

    name: str
    title: str
    metric: MetricName
    recipes: Mapping[str, Path]
    notes: str
    titles: Mapping[str, str] = field(default_factory=dict)
    paper: Mapping[str, object] = field(default_factory=dict)
    choices: Mapping[str, Sequence[Fragment]] = field(default_factory=dict)
    choose_seed: int = 100
    choosing: Fragment = field(default_factory=dict)
    compare: str = _COMPARE[0]
    panels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    change: Fragment = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, name: str) -> TableStudy:
        """Read a study from the folder of all studies; RecipeError if it is missing or has an error.

        With `base`, the name of another study, it is like that one except for what it states itself.
        """
        path = folder / name / _ABOUT
        about, place = _read_about(folder, name)
        try:
            recipes = {row: place / f"{row}.yaml" for row in about.pop("rows")}
            study = cls(name=name, recipes=recipes, **about)
        except (KeyError, TypeError, AttributeError) as error:
            raise RecipeError(f"{path}: {error}; it needs title, metric, rows and notes") from error
        for key, value, known in (
            ("metric", study.metric, (*METRICS,)),
            ("compare", study.compare, _COMPARE),
        ):
            if value not in known:
                raise RecipeError(f"{path}: {key} must be one of {', '.join(known)}, got {value!r}")
        study.check_rows(chain(study.choices, *study.panels.values()), str(path))
        tried = {row: len(study.choices.get(row, ())) for row in recipes}
        if len(set(tried.values())) > 1:
            counts = ", ".join(f"{row} {count}" for row, count in tried.items())
            raise RecipeError(f"{path}: choices: all rows must have as many, got {counts}")
        return study

    def check_rows(self, rows: Iterable[str], where: str) -> None:
        """Refuse rows that this study does not have."""
        for row in rows:
            if row not in self.recipes:
                known = ", ".join(self.recipes)
                raise RecipeError(f"{where}: {self.name} has no row {row!r}; its rows are {known}")

    def start_name(self, seed: int) -> str:
        """Place among all runs of a first phase, which all tables of the data set share."""
        return f"{self.name.split('/')[0]}/start/seed-{seed}"

    def title_of(self, row: str, method: str) -> str:
        """Title of a row whose recipe has this method."""
        return self.titles.get(row, method_of(method).title)

    @cached_property
    def choice_recipes(self) -> dict[str, list[Recipe]]:
        """For each row the recipes that try its choices; nothing is evaluated on test rows."""
        return {
            row: [self.recipe(row, self.choose_seed, change, self.choosing).untested() for change in changes]
            for row, changes in self.choices.items()
        }

    def recipe(
        self, row: str, seed: int, change: Mapping[str, Any] | None = None, both: Fragment | None = None
    ) -> Recipe:
        """The recipe of a row with a seed, with changes to its file, and to `both` it and its first phase."""
        fragment, both = read_recipe(self.recipes[row]), merge(self.change, both or {})
        fragment = merge(fragment, both)
        if fragment.get("pretrain") is not None:
            fragment = merge(fragment, {"pretrain": both})
        return resolve(merge(merge(fragment, change or {}), {"seed": seed}))


def _read_about(folder: Path, name: str) -> tuple[dict[str, Any], Path]:
    """What a study states, on top of its base if it has one, and the folder of the recipes."""
    path = folder / name / _ABOUT
    if not path.exists():
        names = ", ".join(study_names(folder))
        raise RecipeError(f"there is no study {name} in {folder} (no {path}); it has {names}")
    about = require("yaml", extra="training").safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(about, dict) or "base" not in about:
        return about, path.parent
    base, place = _read_about(folder, about.pop("base"))
    change = merge(base.get("change", {}), about.get("change", {}))
    about = {**base, **about, "change": change}
    for key in {"choices", "titles", "paper"} & about.keys():
        about[key] = {row: value for row, value in about[key].items() if row in about["rows"]}
    return about, place


def study_names(folder: Path) -> list[str]:
    """All studies in a folder."""
    return sorted(path.parent.relative_to(folder).as_posix() for path in folder.glob(f"*/*/{_ABOUT}"))


def studies_with_logs(folder: Path, results: Path) -> list[TableStudy]:
    """All studies in a folder of which a finished run has its log in `results`."""
    return [
        TableStudy.read(folder, name)
        for name in study_names(folder)
        if any((results / name).glob("*/seed-*/result.json"))
    ]
