"""`mmb train`: a recipe, or a data set and a method."""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmb.cli.console import Console
from mmb.cli.parser import UsageError, add_overrides

if TYPE_CHECKING:
    from mmb.training import Recipe, Run
    from mmb.training.processes.group import Ranks


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("recipe", nargs="?", help="recipe file (YAML); key=value also goes here")
    add_overrides(parser)
    add_choice_options(parser)
    parser.add_argument("--output", type=Path, help="folder of the run; by default made up below runs/")
    parser.add_argument(
        "--keys", action="store_true", help="list all keys of the recipe, with help, and stop"
    )


def add_choice_options(parser: argparse.ArgumentParser) -> None:
    """Options that choose what to train on and for."""
    from mmb.training.recipes.presets import METHODS

    parser.add_argument("--data", help="data set; `mmb data list` lists them")
    parser.add_argument("--method", help="what to train for: " + ", ".join(METHODS))


def run(options: argparse.Namespace, console: Console) -> None:
    """Train."""
    from mmb.training import resolve
    from mmb.training.loop.setup import find_device
    from mmb.training.processes.group import joined
    from mmb.training.recipes.resolution import describe_keys

    fragment = chosen_fragment(options, "data", "method")
    if options.keys:
        text = describe_keys(fragment)
        console.result({"help": text})
        console.show(text)
        return
    recipe = resolve(fragment)
    with joined(find_device(recipe.training.device)) as ranks:
        made = make_run(options.output, recipe, ranks)
        if ranks.is_main:
            console.say(f"training in {made.path}")
        try:
            train_and_show(made, console, ranks)
        except Exception:
            if ranks.is_main:
                made.discard_unstarted()  # so that the same command can be given again, corrected
            raise


def make_run(output: Path | None, recipe: Recipe, ranks: Ranks) -> Run:
    """Make the folder of a run, in the main process; the others find it there.

    Where torchrun starts all processes again after a failure, it is the one that they made before.

    Raises:
        RunError: If there is a run in that folder already, or the processes do not see the same folder.
    """
    from mmb.training import Run, RunError

    path = None
    if ranks.is_main:
        name = (recipe.data["name"], recipe.method, recipe.seed)
        before = output or last_folder(*name)
        restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
        if restarted and (before / "recipe.yaml").exists() and Run.open(before).recipe == recipe:
            path = before
        while path is None:
            try:
                path = Run.create(output or free_folder(*name), recipe).path
            except RunError:
                if output is not None:
                    raise  # else another process took that name just now
    path = ranks.from_main(path)
    assert path is not None
    if not path.exists():
        raise RunError(
            f"process {ranks.rank} does not see the folder {path.resolve()} of the run: all processes need "
            "the same one, on a file system that their machines share"
        )
    return Run(path, recipe)


def train_and_show(run: Run, console: Console, ranks: Ranks) -> None:
    """Train a run to its end; the main process shows progress and result."""
    from mmb.cli.watching import ProgressWatch
    from mmb.training import train
    from mmb.training.processes.commands import command

    if not ranks.is_main:
        warnings.simplefilter("ignore", UserWarning)  # the main process says the same
        train(run)
        return
    try:
        with console.progress() as progress:
            result = train(run, ProgressWatch(progress, console))
    except OSError as error:
        if run.checkpoints.exists():
            error.add_note(f"continue with `{command('resume', run.path)}`")
        raise
    show_result(run.path, result, console)


def chosen_fragment(options: argparse.Namespace, *required: str) -> dict[str, Any]:
    """What the command line says about the recipe.

    Args:
        options: Of the command.
        required: Names of the options that are needed where there is no recipe file: data, method.
    """
    from mmb.training import merge, read_recipe, with_overrides

    recipe, overrides = options.recipe, options.overrides
    if recipe is not None and "=" in recipe:
        recipe, overrides = None, [recipe, *overrides]
    if recipe is None and not all(getattr(options, name) for name in required):
        raise UsageError(f"give a recipe file, or {' and '.join(f'--{name}' for name in required)}")
    fragment = {} if recipe is None else read_recipe(recipe)
    if options.data:
        fragment = merge(fragment, {"data": {"name": options.data}})
    if "method" in required and options.method:
        fragment = merge(fragment, {"method": options.method})
    return with_overrides(fragment, overrides)


def free_folder(*words: object) -> Path:
    """A folder below runs/ that is not there yet, named after some words."""
    return next(path for path in _folders(*words) if not path.exists())


def last_folder(*words: object) -> Path:
    """The folder before that one, or that one if there is none before it."""
    there = list(takewhile(Path.exists, _folders(*words)))
    return there[-1] if there else free_folder(*words)


def _folders(*words: object) -> Iterator[Path]:
    name = "-".join(str(word) for word in words)
    yield Path("runs") / name
    for number in count(2):
        yield Path("runs") / f"{name}-{number}"


def show_result(path: Path, result: dict[str, Any], console: Console) -> None:
    """Show the table of a finished run and where it is."""
    from mmb.training.processes.commands import command
    from mmb.training.runs.tables import result_table

    console.show(result_table(result))
    predict = command("predict", path, "--input", "FILE", "--output", "FILE")
    console.say(f"the run is in {path}; next: `{command('evaluate', path)}`, `{predict}`")
    console.result({"run": str(path), **result})
