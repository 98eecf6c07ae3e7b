"""`mmb compare`: several methods side by side."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from mmb._cores import available_cores
from mmb.cli.console import Console
from mmb.cli.parser import UsageError, add_overrides, positive
from mmb.cli.train_command import chosen_fragment


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("recipe", nargs="?", help="recipe file (YAML) that all methods share; or use --data")
    add_overrides(parser)
    parser.add_argument("--data", help="data set; `mmb data list` lists them")
    parser.add_argument("--methods", default="ce,auc,auc-ct,pauc", help="names of methods, with commas")
    parser.add_argument("--seeds", type=positive, default=3, help="number of seeds")
    parser.add_argument(
        "--jobs", type=positive, help="runs at a time; by default one per core, or one on a GPU"
    )
    parser.add_argument("--output", type=Path, help="folder of the comparison; by default runs/compare-DATA")


def run(options: argparse.Namespace, console: Console) -> None:
    """Train all, then show and write the table and the curves."""
    from mmb._atomic_files import write_whole
    from mmb.cli.watching import train_and_show
    from mmb.training import METHODS, plan_comparison, summarize
    from mmb.training.processes.commands import command
    from mmb.training.runs.curves import plot_curves
    from mmb.training.runs.tables import as_text, comparison_table

    methods = list(dict.fromkeys(method.strip() for method in options.methods.split(",") if method.strip()))
    if not methods:
        raise UsageError(f"--methods needs names of methods, with commas; known are {', '.join(METHODS)}")
    fragment = chosen_fragment(options, "data")
    name = fragment["data"]["name"]
    folder = options.output or Path("runs") / f"compare-{name}"
    planned = plan_comparison(fragment, methods, options.seeds, folder)
    runs = [one.run for one in planned]
    recipe = runs[0].recipe
    console.say(f"{len(methods)} methods, {options.seeds} seeds, in {folder}")
    jobs = options.jobs or default_jobs(recipe.training.device)
    train_and_show(f"comparing on {name}", planned, jobs, console)
    summary = summarize(runs)
    table = comparison_table(summary, recipe)
    write_whole(folder / "table.txt", as_text(table))
    write_whole(folder / "summary.json", json.dumps(summary, indent=1))
    plot_curves(runs, folder / "curves.png")
    console.show(table)
    console.show(
        f"Curves: {folder / 'curves.png'}\n"
        f"Each task of a run: {runs[-1].path / 'table.txt'}\n"
        f"Watch it all: tensorboard --logdir {shlex.quote(str(folder))}\n"
        f"Use a model: {command('predict', runs[-1].path, '--input', 'FILE', '--output', 'FILE')}"
    )
    console.result({"output": str(folder), "methods": summary})


def default_jobs(device: str) -> int:
    """As many as there are cores, or one on a GPU."""
    from mmb.training.loop.setup import find_device

    return 1 if find_device(device).type == "cuda" else available_cores()
