"""Which runs a study needs: those that try the choices of its rows, and those of its table."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mmb.metrics import METRICS
from mmb.training.recipes.nested import Fragment, merge
from mmb.training.recipes.recipe import Recipe
from mmb.training.recipes.resolution import resolve, to_plain
from mmb.training.runs.run import Run, RunError, command
from mmb.training.studies.compare import check_fair
from mmb.training.studies.many_runs import PlannedRun
from mmb.training.studies.reproduce.logs import LoggedRun, failure_of, has_ended
from mmb.training.studies.reproduce.study import TableStudy

_MAY_DIFFER = {"rows": (), "steps": ("rows per step",), "data": ("rows per step", "steps", "model")}


def plan_table(
    study: TableStudy, seeds: int, folder: Path, results: Path, rows: Sequence[str] | None = None
) -> list[PlannedRun]:
    """Make, or find again, the folders of all runs of a study's table.

    A first phase that rows share is trained once for each seed, in `start/seed-N`, and linked to from there.

    Args:
        study: The study.
        seeds: Seeds 0 to `seeds - 1` are used.
        folder: Folder of the runs of all studies.
        results: Folder of the logs; they, or the runs, tell the best of a row's choices.
        rows: The rows to run; all by default.

    Returns:
        The runs, seed by seed, each first phase before the runs that start from it.

    Raises:
        RecipeError: If a recipe is wrong, or a row unknown; no folder is made then.
        RunError: If a folder has a run of another recipe, rows are not comparable, or choices were not tried.
    """
    study.check_rows(rows or (), "--rows")
    rows = rows or list(study.recipes)
    if study.choices and study.choose_seed < seeds:
        raise RunError(f"{study.name}: choose_seed {study.choose_seed} is one of the {seeds} of the table")
    change = {row: study.choices[row][chosen(study, row, folder, results)] for row in rows if study.choices}
    wanted = {
        f"{study.name}/{row}/seed-{seed}": study.recipe(row, seed, change.get(row))
        for seed in range(seeds)
        for row in rows
    }
    return _planned(study, wanted, folder)


def plan_choices(study: TableStudy, folder: Path, rows: Sequence[str] | None = None) -> list[PlannedRun]:
    """Make, or find again, the folders of the runs that try the choices of a study's rows.

    They have another seed than the table, and nothing is evaluated on test rows. Arguments, answer and errors
    are those of `plan_table`; a study without choices is a `RunError`.
    """
    study.check_rows(rows or (), "--rows")
    if not study.choices:
        raise RunError(f"{study.name} has nothing to choose: its study.yaml has no choices")
    wanted = {
        name: recipe
        for row in rows or study.recipes
        for name, recipe in zip(choice_names(study, row), study.choice_recipes[row], strict=True)
    }
    return _planned(study, wanted, folder)


def choices_there(study: TableStudy, folder: Path) -> list[PlannedRun]:
    """The runs that try choices, and their first phase, as far as they have folders; makes none."""
    names = [name for row in study.choices for name in choice_names(study, row)]
    names.append(study.start_name(study.choose_seed))
    return [
        PlannedRun(name, Run.open(folder / name))
        for name in names
        if (folder / name / "recipe.yaml").exists()
    ]


def choice_names(study: TableStudy, row: str) -> list[str]:
    """Places of the runs that try the choices of a row, among all runs."""
    return [f"{study.name}/choices/{row}/{index}" for index in range(len(study.choices.get(row, ())))]


def tried(study: TableStudy, row: str, *folders: Path) -> list[float | None]:
    """Validation metric of each choice of a row, by the first folder that has it; None where it failed."""
    data, table = study.name.split("/")
    remedy = f"run `{command('reproduce', table, '--data', data, '--choose')}` first"
    values: list[float | None] = []
    for index, name in enumerate(choice_names(study, row)):
        path = next((folder / name for folder in folders if has_ended(folder / name)), None)
        if path is None:
            raise RunError(f"choice {index} of row {row} of {study.name} was not tried: {remedy}")
        log = LoggedRun(path)
        if not _is_recipe(log.recipe, study.choice_recipes[row][index]):
            raise RunError(f"{path} is the log of another recipe: remove it, and {remedy}")
        values.append(None if failure_of(path) else float(log.result["valid"][study.metric]))
    return values


def chosen(study: TableStudy, row: str, *folders: Path) -> int:
    """The choice of a row with the best validation metric, the first of equals."""
    values, gain = tried(study, row, *folders), METRICS[study.metric].gain
    found = [(gain(value), -index) for index, value in enumerate(values) if value is not None]
    if not found:
        raise RunError(f"training failed with every choice of row {row} of {study.name}: give it others")
    return -max(found)[1]


def not_as_chosen(study: TableStudy, row: str, runs: Sequence[LoggedRun], results: Path) -> list[Path]:
    """Of the logs of a row of the table, those whose recipe is not that of the best choice."""
    if not study.choices:
        return []
    change = study.choices[row][chosen(study, row, results)]
    best = study.recipe(row, 0, change).untested()
    return [run.path for run in runs if not _is_recipe(_of_seed_0(run.recipe), best)]


def _of_seed_0(recipe: Fragment) -> Fragment:
    """A recipe with seed 0 whatever its seed, and without test rows."""
    recipe = merge(recipe, {"seed": 0, "training": {"test": False}})
    if recipe.get("pretrain") is not None:
        recipe["pretrain"] = _of_seed_0(recipe["pretrain"])
    return recipe


def _is_recipe(logged: Fragment, recipe: Recipe) -> bool:
    """Whether what was logged is a recipe; it is resolved, which takes long, only if needed."""
    return logged == to_plain(recipe) or resolve(logged) == recipe


def _planned(study: TableStudy, wanted: Mapping[str, Recipe], folder: Path) -> list[PlannedRun]:
    recipes = list(wanted.values())
    check_fair(recipes, but=_MAY_DIFFER[study.compare])
    phases = [r for r in recipes if study.compare == "rows" or r.pretrain is not None]
    if len({str((r.seed, r.pretrain)) for r in phases}) > len({r.seed for r in phases}):
        raise RunError(f"not a fair comparison: the rows of {study.name} have different first phases")
    found: dict[str, PlannedRun] = {}
    for name, recipe in wanted.items():
        after = None
        run = Run.find(folder / name, recipe)
        if recipe.pretrain is not None:
            after = study.start_name(recipe.seed)
            found.setdefault(after, PlannedRun(after, Run.find(folder / after, recipe.pretrain)))
            link = run.path / "pretrain"
            if not link.exists():
                with suppress(OSError):  # without links, each run trains its first phase, to the same end
                    link.symlink_to(os.path.relpath(folder / after, run.path), target_is_directory=True)
        found[name] = PlannedRun(name, run, after)
    return list(found.values())
