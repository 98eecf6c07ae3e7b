"""`mmb train`: a recipe, or a data set and a method."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mmb.cli.console import Console
from mmb.cli.parser import UsageError, add_overrides


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
    from mmb.training.presets import METHODS

    parser.add_argument("--data", help="data set; `mmb data list` lists them")
    parser.add_argument("--method", help="what to train for: " + ", ".join(METHODS))


def run(options: argparse.Namespace, console: Console) -> None:
    """Train."""
    from mmb.cli.watching import ProgressWatch
    from mmb.training import Run, resolve, train
    from mmb.training.resolve import describe_keys

    fragment = chosen_fragment(options)
    if options.keys:
        text = describe_keys(fragment)
        console.result({"help": text})
        console.show(text)
        return
    recipe = resolve(fragment)
    made = Run.create(options.output or free_folder(recipe.data["name"], recipe.method, recipe.seed), recipe)
    console.say(f"training in {made.path}")
    with console.progress() as progress:
        result = train(made, ProgressWatch(progress, console))
    show_result(made.path, result, console)


def chosen_fragment(options: argparse.Namespace) -> dict[str, Any]:
    """What the command line says about the recipe."""
    from mmb.training import merge, parse_overrides, read_recipe

    recipe, overrides = options.recipe, options.overrides
    if recipe is not None and "=" in recipe:
        recipe, overrides = None, [recipe, *overrides]
    if recipe is None and not (options.data and options.method):
        raise UsageError("give a recipe file, or --data and --method")
    fragment = {} if recipe is None else read_recipe(recipe)
    if options.data:
        fragment = merge(fragment, {"data": {"name": options.data}})
    if options.method:
        fragment = merge(fragment, {"method": options.method})
    return merge(fragment, parse_overrides(overrides))


def free_folder(*words: object) -> Path:
    """A folder below runs/ that is not there yet, named after some words."""
    name = "-".join(str(word) for word in words)
    path, number = Path("runs") / name, 2
    while path.exists():
        path, number = Path("runs") / f"{name}-{number}", number + 1
    return path


def show_result(path: Path, result: dict[str, Any], console: Console) -> None:
    """Show the table of a finished run and where it is."""
    console.show((path / "table.txt").read_text(encoding="utf-8"))
    console.say(f"the run is in {path}; next: `mmb evaluate {path}`, `mmb predict {path} --input FILE`")
    console.result({"run": str(path), **result})
