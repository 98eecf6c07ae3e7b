"""Which runs a study needs, where they are, and where their logs are kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mmb._atomic_files import write_whole
from mmb.training.loop.evaluate import TrainingError
from mmb.training.recipes.recipe import Recipe
from mmb.training.runs.run import Run, RunError
from mmb.training.studies.compare import check_fair
from mmb.training.studies.reproduce.choices import FAILED, choice_name, choice_recipe, chosen
from mmb.training.studies.reproduce.study import Study

ERROR = "error.txt"
"""File in the folder of a run that failed: why, and where."""

_LOGS = ("recipe.yaml", "metrics.jsonl", "result.json")


@dataclass(frozen=True)
class Planned:
    """A run of a study.

    Attributes:
        name: Place of its folder among all runs, and of its logs among all results, such as
            `molpcba/table2/ce/seed-0`.
        run: The run.
        after: Name of the first phase that it starts from, if any.
    """

    name: str
    run: Run
    after: str | None = None


def plan(
    study: Study, seeds: int, folder: Path, results: Path, rows: Sequence[str] | None = None
) -> list[Planned]:
    """Make, or find again, the folders of all runs of a study's table.

    A first phase that rows share is trained once for each seed, in `start/seed-N`, and linked to from there.

    Args:
        study: The study.
        seeds: Seeds 0 to `seeds - 1` are used.
        folder: Folder of the runs of all studies.
        results: Folder of the logs, which tell the best of a row's choices.
        rows: The rows to run; all by default.

    Returns:
        The runs, seed by seed, each first phase before what starts from it.

    Raises:
        RecipeError: If a recipe is wrong, or a row unknown; no folder is made then.
        RunError: If a folder has a run of another recipe, rows are not comparable, or choices were not tried.
    """
    rows = _checked(study, rows)
    if study.choices and study.choose_seed < seeds:
        raise RunError(f"{study.name}: choose_seed {study.choose_seed} is one of the {seeds} of the table")
    change = {row: study.choices[row][chosen(study, row, results)] for row in rows if study.choices}
    wanted = [
        (f"{study.name}/{row}/seed-{seed}", study.recipe(row, seed, change.get(row)))
        for seed in range(seeds)
        for row in rows
    ]
    return _planned(study, wanted, folder)


def plan_choices(study: Study, folder: Path, rows: Sequence[str] | None = None) -> list[Planned]:
    """Make, or find again, the folders of the runs that try the choices of a study's rows.

    They have a seed of their own, which is none of the table, and nothing is evaluated on test rows.

    Args:
        study: The study.
        folder: Folder of the runs of all studies.
        rows: The rows; all by default.

    Returns:
        The runs, a first phase before them.

    Raises:
        RecipeError: If a recipe is wrong, a row unknown, or there are no choices; no folder is made then.
        RunError: If a folder has a run of another recipe, or runs are not comparable.
    """
    rows = _checked(study, rows)
    if not study.choices:
        raise RunError(f"{study.name} has nothing to choose: its study.yaml has no choices")
    wanted = [
        (choice_name(study, row, index), choice_recipe(study, row, index))
        for row in rows
        for index in range(len(study.choices[row]))
    ]
    return _planned(study, wanted, folder)


def choices_there(study: Study, folder: Path) -> list[Planned]:
    """The runs that try choices, and their first phase, as far as they have folders; makes none."""
    names = [choice_name(study, row, k) for row, tried in study.choices.items() for k in range(len(tried))]
    names.append(_start_name(study, study.choose_seed))
    return [
        Planned(name, Run.open(folder / name)) for name in names if (folder / name / "recipe.yaml").exists()
    ]


def _start_name(study: Study, seed: int) -> str:
    return f"{Path(study.name).parent}/start/seed-{seed}"


def _checked(study: Study, rows: Sequence[str] | None) -> Sequence[str]:
    for row in rows or ():
        study.check_row(row, "--rows")
    return rows or list(study.recipes)


def _planned(study: Study, wanted: Sequence[tuple[str, Recipe]], folder: Path) -> list[Planned]:
    check_fair([recipe for _, recipe in wanted], same_rows=study.compare == "rows")
    if len({str((recipe.seed, recipe.pretrain)) for _, recipe in wanted}) > len({r.seed for _, r in wanted}):
        raise RunError(f"not a fair comparison: the rows of {study.name} have different first phases")
    found: dict[str, Planned] = {}
    for name, recipe in wanted:
        after = None
        run = Run.find(folder / name, recipe)
        if recipe.pretrain is not None:
            after = _start_name(study, recipe.seed)
            found.setdefault(after, Planned(after, Run.find(folder / after, recipe.pretrain)))
            link = run.path / "pretrain"
            if not link.exists():
                link.symlink_to(os.path.relpath(folder / after, run.path))
        found[name] = Planned(name, run, after)
    return list(found.values())


def keep_logs(planned: Iterable[Planned], results: Path) -> None:
    """Copy the logs of finished runs to `results`, and of runs whose training failed why it did."""
    for one in planned:
        source, kept = one.run.path, results / one.name
        if one.run.finished:
            kept.mkdir(parents=True, exist_ok=True)
            (kept / FAILED).unlink(missing_ok=True)
            for name in _LOGS:
                shutil.copyfile(source / name, kept / name)
        elif (source / ERROR).exists():
            problem = (source / ERROR).read_text(encoding="utf-8").split("\n\n")[0]
            # Of the settings, not of the machine: a choice that is out, and no reason to try again.
            if problem.startswith(TrainingError.__name__):
                kept.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / _LOGS[0], kept / _LOGS[0])
                write_whole(kept / FAILED, f"{problem}\n")
