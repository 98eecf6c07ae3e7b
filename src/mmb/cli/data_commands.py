"""`mmb data`: list, describe, get and prepare data sets."""

import argparse
from typing import Any

from mmb import data
from mmb._names import OWN_DATA
from mmb.cli.console import Console
from mmb.cli.usage import UsageError
from mmb.data.checks import find_problems
from mmb.data.registry import reserved_arguments
from mmb.data.summary import summarize_data
from mmb.training.recipes.overrides import read_options
from mmb.training.runs.run import command
from mmb.training.runs.tables import first_rows, make_table


def run_data(options: argparse.Namespace, console: Console) -> None:
    """List, describe, get or prepare."""
    if options.action in ("list", "get") and options.overrides:
        raise UsageError(
            f"`mmb data {options.action}` takes no options of a data set: {options.overrides[0]}"
        )
    if options.action == "list":
        if options.name is not None:
            raise UsageError(f"`mmb data list` lists all; for one, `mmb data describe {options.name}`")
        return list_data(console)
    if options.name is None:
        raise UsageError(f"`mmb data {options.action}` needs the name of a data set; see `mmb data list`")
    return {"describe": describe, "get": get, "prepare": prepare}[options.action](options, console)


def list_data(console: Console) -> None:
    """List every data set with its description."""
    found = data.available_datasets()
    console.show(make_table("Data sets", ["name", "what"], list(found.items())))
    console.result(found)


def describe(options: argparse.Namespace, console: Console) -> None:
    """Rows, tasks, positives and negatives of one data set."""
    dataset = data.load(options.name, options.root, **chosen_options(options, "load"))
    found = {**dataset.describe(), "warnings": find_problems(dataset)}
    counts, keys = found["counts"], ["positive", "negative", "missing"]
    rows = [
        [name, *(counts[part][key][index] for part in found["split"] for key in keys)]
        for index, name in enumerate(found["task_names"])
    ]
    columns = ["task", *(text for part in found["split"] for text in (f"{part} +", "-", "gaps"))]
    sizes = ", ".join(f"{part} {size}" for part, size in found["split"].items())
    lines = summarize_data(dataset) if options.name in OWN_DATA else [data.about(options.name)]
    console.show("\n".join([*lines, ""]))
    console.show(make_table(f"{options.name}: {found['rows']} rows ({sizes})", columns, first_rows(rows)))
    for problem in found["warnings"]:
        console.show(f"warning: {problem}")
    console.result(found)


def get(options: argparse.Namespace, console: Console) -> None:
    """Get the raw files."""
    path = data.get(options.name, options.root, options.source)
    console.say(
        f"the files of {options.name} are in {path}; next: `{command('data', 'prepare', options.name)}`"
    )
    console.result({"name": options.name, "path": str(path)})


def prepare(options: argparse.Namespace, console: Console) -> None:
    """Build the cache that loading opens."""
    chosen = chosen_options(options, "prepare")
    with console.progress() as progress:
        bar = progress.add_task(f"preparing {options.name}", total=1, unit="rows", numbers="")
        path = data.prepare(
            options.name,
            options.root,
            lambda done, total: progress.update(bar, completed=done, total=total),
            **chosen,
        )
    known = data.dataset_options(options.name)  # training has these; others, such as workers, only prepare
    keys = [f"data.{text}" for text in options.overrides if text.partition("=")[0] in known]
    following = command("compare", "--data", options.name, *keys)
    console.say(f"{options.name} is prepared in {path}; next: `{following}`")
    console.result({"name": options.name, "path": str(path)})


def chosen_options(options: argparse.Namespace, action: str) -> dict[str, Any]:
    """The options of the data set in the arguments."""
    function = data.loader(options.name, action)
    return read_options(function, options.overrides, skip=reserved_arguments(function))
