"""The recipe that the command line chooses, suited to the user's data."""

import argparse
import os
from functools import partial
from typing import Any

from mmb.cli.console import Console
from mmb.data import Dataset
from mmb.data.checks import find_problems
from mmb.data.summary import summarize_data
from mmb.training import merge, read_recipe, with_overrides
from mmb.training.recipes.adapted import adapted
from mmb.training.recipes.nested import flatten

_LOOKED_AT = 1e8  # numbers among the inputs, for what may be wrong with data


def suited_fragment(
    options: argparse.Namespace, console: Console, keep_batch: bool = False, quiet: bool = False
) -> dict[str, Any]:
    """The recipe that the command line chooses, suited to the size of the user's own data.

    It says what was understood of the data, unless it is to be quiet.
    """
    fragment = chosen_fragment(options)
    added = adapted(fragment, keep_batch, None if quiet else partial(show_data, console))
    if added and not quiet:
        shown = {key: f"{v:g}" if isinstance(v, float) else v for key, v in flatten(added).items()}
        keys = ", ".join(f"{key}={value}" for key, value in shown.items())
        console.say(f"chosen by the number of rows and positives: {keys}")
    return merge(fragment, added)  # nothing that is stated is added


def show_data(console: Console, dataset: Dataset) -> None:
    """Say what was understood of a user's own data, and what may be wrong with it."""
    for line in summarize_data(dataset):
        console.say(line)
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1  # else all processes have to ask for inputs together
    for problem in find_problems(dataset, "data.", _LOOKED_AT if alone else 0):
        console.warn(problem)


def chosen_fragment(options: argparse.Namespace) -> dict[str, Any]:
    """The recipe that the command line chooses."""
    fragment = {} if options.recipe is None else read_recipe(options.recipe)
    if options.data:
        fragment = merge(fragment, {"data": {"name": options.data}})
    if getattr(options, "method", None):
        fragment = merge(fragment, {"method": options.method})
    return with_overrides(fragment, options.overrides)
