"""`mmb train` with `--replicates`, `--ensemble` or `--folds`: several runs of one recipe."""

import argparse
import statistics
from typing import Any

from mmb.cli.chosen_recipe import suited_fragment
from mmb.cli.console import Console
from mmb.cli.training_commands import default_folder, next_steps
from mmb.cli.watching import train_and_show
from mmb.metrics.titles import column_titles, definition, shown_metrics
from mmb.training import Recipe, plan_folds, plan_replicates, predict_out_of_fold, resolve
from mmb.training.runs.tables import make_table
from mmb.training.studies.replicates import averaged_metrics, write_ensemble


def run_replicates(options: argparse.Namespace, console: Console) -> None:
    """Train the same recipe with several seeds, and show how results vary and, if asked, their average."""
    fragment, number = suited_fragment(options, console), options.replicates or options.ensemble
    recipe = resolve(fragment)
    folder = options.output or default_folder(recipe, "ensemble" if options.ensemble else "replicates")
    planned = plan_replicates(fragment, number, folder)
    runs = [one.run for one in planned]
    console.say(f"{number} runs in {folder}")
    train_and_show(f"{recipe.method} on {recipe.data['name']}", planned, options.jobs, console)
    part = "test" if recipe.training.test else "valid"
    results = {run.path.name: run.result()[part] for run in runs}
    found: dict[str, Any] = {"output": str(folder), "part": part, "runs": results}
    if options.ensemble:
        write_ensemble(folder, runs)
        found["average"] = averaged_metrics(runs, part)
    shown = shown_metrics(recipe.training.select)
    rows: list[list[Any]] = [[name, *(means[key] for key in shown)] for name, means in results.items()]
    spread = {key: [means[key] for means in results.values() if means[key] is not None] for key in shown}
    rows.append(["mean", *(statistics.fmean(spread[key]) if spread[key] else None for key in shown)])
    if number > 1:
        rows.append(
            ["deviation", *(statistics.stdev(v) if len(v := spread[key]) > 1 else None for key in shown)]
        )
    if options.ensemble:
        rows.append(["average of scores", *(found["average"][key] for key in shown)])
    console.show(metric_table(f"{recipe.data['name']}, {recipe.method}: {part} rows", rows, recipe))
    used = [folder] if options.ensemble else [runs[0].path]
    console.show(f"Use {'the average' if options.ensemble else 'one'}: {next_steps(runs[0], *used)[-1]}")
    console.result(found)


def run_folds(options: argparse.Namespace, console: Console) -> None:
    """Train a run for each fold, and score every row by the run that has not seen it."""
    fragment = suited_fragment(options, console)
    recipe = resolve(fragment)
    folder = options.output or default_folder(recipe, "folds")
    planned = plan_folds(fragment, options.folds, folder)
    console.say(f"{options.folds} runs in {folder}")
    train_and_show(f"{recipe.method} on {recipe.data['name']}", planned, options.jobs, console)
    runs = [one.run for one in planned]
    target = folder / "out_of_fold.csv"
    together = predict_out_of_fold(runs, target)
    results = {run.path.name: run.result()["test"] for run in runs}
    shown = shown_metrics(recipe.training.select)
    each = {**results, "all rows": together}
    rows = [[name, *(means[key] for key in shown)] for name, means in each.items()]
    title = f"{recipe.data['name']}, {recipe.method}: rows of each fold by the run that has not seen it"
    console.show(metric_table(title, rows, recipe))
    console.show(f"Scores of every row: {target}")
    console.result({"output": str(folder), "scores": str(target), "runs": results, "all": together})


def metric_table(title: str, rows: list[list[Any]], recipe: Recipe) -> Any:
    """A table (rich) of the metrics that runs of a recipe show, a line for each run."""
    max_fpr, select = recipe.training.max_fpr, recipe.training.select
    return make_table(title, ["run", *column_titles(max_fpr, select)], rows, definition(max_fpr, select))
