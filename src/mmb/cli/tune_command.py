"""`mmb tune`: find the best values for a recipe."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from mmb._extras import require
from mmb.cli.console import Console
from mmb.cli.parser import add_overrides, positive
from mmb.cli.train_command import add_choice_options, chosen_fragment

if TYPE_CHECKING:
    from mmb.training import TuningStudy

_SHOWN = 10


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("recipe", nargs="?", help="recipe file (YAML), with or without its own grid")
    add_overrides(parser)
    add_choice_options(parser)
    parser.add_argument(
        "--trials",
        type=positive,
        default=30,
        help="trials in all (default 30); the same command continues, also in several terminals at once",
    )
    parser.add_argument("--jobs", type=positive, default=1, help="trials at a time, each in its own process")
    parser.add_argument(
        "--output", type=Path, help="folder of the study; by default runs/tune-DATA-METHOD-SEED"
    )


def run(options: argparse.Namespace, console: Console) -> None:
    """Work on the study, then show its best trials."""
    from mmb.cli.watching import ProgressObserver
    from mmb.training import TuningStudy, resolve

    recipe = resolve(chosen_fragment(options, "data", "method"))
    default = Path("runs") / f"tune-{recipe.data['name']}-{recipe.method}-{recipe.seed}"
    optuna = require("optuna", extra="tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # the progress bar tells more
    study = TuningStudy(options.output or default, recipe)
    console.say(f"tuning in {study.folder}; stop it at any time, the same command continues")
    with console.progress() as progress:
        study.run(options.trials, ProgressObserver(progress, console), options.jobs)
    show(study, options.trials, console)


def show(study: TuningStudy, trials: int, console: Console) -> None:
    """Show the best trials and where the recipe is."""
    from mmb.training.processes.commands import command
    from mmb.training.runs.tables import make_table

    records, best, metric = study.trials(), study.best(), study.recipe.training.select
    states = Counter(record["state"] for record in records)
    complete = [record for record in records if record["state"] == "complete"]
    complete.sort(key=lambda record: -record["value"])
    keys = list(study.recipe.grid)
    rows = [
        [record["number"], record["value"], *(str(record["params"][key]) for key in keys)]
        for record in complete[:_SHOWN]
    ]
    console.show(make_table(f"best trials, validation {metric}", ["trial", metric, *keys], rows))
    console.show("trials: " + ", ".join(f"{count} {state}" for state, count in states.items()))
    if len(records) < trials:
        console.say(f"the grid has {len(records)} combinations; all were tried")
    path = None
    if best is not None:
        path = str(study.folder / "best.yaml")
        console.show(f"Train with the best values: {command('train', path)}")
    console.result(
        {"output": str(study.folder), "recipe": path, "best": best, "states": states, "trials": records}
    )
