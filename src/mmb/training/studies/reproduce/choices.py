"""Choices between settings of a row, equally many for all rows, made on validation rows alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mmb.training.recipes.nested import flatten
from mmb.training.recipes.recipe import Recipe
from mmb.training.runs.run import Run, RunError
from mmb.training.studies.reproduce.study import METRICS, Study

FAILED = "failed.txt"
"""Stands in for the result of a choice with which training failed: why."""


def choice_name(study: Study, row: str, index: int) -> str:
    """Place of the run that tries a choice, among all runs."""
    return f"{study.name}/choices/{row}/{index}"


def choice_recipe(study: Study, row: str, index: int) -> Recipe:
    """The recipe that tries a choice: nothing of it, nor of its first phase, is evaluated on test rows."""
    return study.recipe(row, study.choose_seed, study.choices[row][index]).untested()


def tried(study: Study, row: str, results: Path) -> list[float | None]:
    """The validation metric of each choice of a row, as logs in `results` have it; None where it failed.

    Raises:
        RunError: If a choice has no log, or one of another recipe.
    """
    data, table = study.name.split("/")
    remedy = f"run `mmb reproduce {table} --data {data} --choose` first"
    values: list[float | None] = []
    for index in range(len(study.choices[row])):
        path = results / choice_name(study, row, index)
        failed = (path / FAILED).exists()
        if not failed and not (path / "result.json").exists():
            raise RunError(f"choice {index} of row {row} of {study.name} was not tried: {remedy}")
        run = Run.open(path)
        if run.recipe != choice_recipe(study, row, index):
            raise RunError(f"{path} is the log of another recipe: remove it, and {remedy}")
        values.append(None if failed else float(run.result()["valid"][study.metric]))
    return values


def chosen(study: Study, row: str, results: Path) -> int:
    """The choice of a row with the largest validation metric, the first of equals.

    Raises:
        RunError: If a choice was not tried, or training failed with all of them.
    """
    return _best(study, row, tried(study, row, results))


def _best(study: Study, row: str, values: list[float | None]) -> int:
    found = [(value, -index) for index, value in enumerate(values) if value is not None]
    if not found:
        raise RunError(f"training failed with every choice of row {row} of {study.name}: give it others")
    return -max(found)[1]


def choices_table(study: Study, results: Path) -> str:
    """What was tried for each row, in Markdown: a line per row, the choice that is taken in bold."""
    count = len(next(iter(study.choices.values())))
    lines = [f"| method | {' | '.join(f'choice {k}' for k in range(count))} |", "|---" * (count + 1) + "|"]
    for row, changes in study.choices.items():
        if (results / choice_name(study, row, 0)).exists():
            values = tried(study, row, results)
            best = _best(study, row, values)
            cells = [
                f"{describe(change)}: {'failed' if value is None else f'{value:.4f}'}"
                for change, value in zip(changes, values, strict=True)
            ]
            cells[best] = f"**{cells[best]}**"
            title = study.title_of(row, choice_recipe(study, row, best).method)
            lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Validation {METRICS[study.metric]} of what was tried, with seed {study.choose_seed} alone and "
        "without a look at test rows; in bold, what the table has.",
    ]
    return "\n".join(lines)


def not_as_chosen(study: Study, row: str, paths: list[Path], results: Path) -> list[Path]:
    """Of the logs of a row of the table, those whose recipe is not that of the best choice."""
    if not study.choices:
        return []
    best = Run.open(results / choice_name(study, row, chosen(study, row, results))).recipe
    return [path for path in paths if _of_any_seed(Run.open(path).recipe) != _of_any_seed(best)]


def _of_any_seed(recipe: Recipe) -> Recipe:
    first = None if recipe.pretrain is None else _of_any_seed(recipe.pretrain)
    return replace(recipe.untested(), seed=0, pretrain=first)


def describe(change: Mapping[str, Any]) -> str:
    """A change to a recipe in one line."""
    return ", ".join(f"{key}={value}" for key, value in flatten(change).items()) or "as it stands"
