"""Commands that train many runs: `compare`, `tune` and `reproduce`."""

import argparse
import json
import math
import shlex
from collections import Counter
from itertools import product
from pathlib import Path

from mmb._atomic_files import write_whole
from mmb._cores import available_cores
from mmb._extras import require
from mmb.cli.chosen_recipe import suited_fragment
from mmb.cli.console import Console
from mmb.cli.training_commands import default_folder, next_steps, show_judgment
from mmb.cli.usage import UsageError
from mmb.cli.watching import ProgressObserver, train_and_show
from mmb.metrics import METRICS
from mmb.report.content import best_of
from mmb.training import (
    METHODS,
    PlannedRun,
    Run,
    RunError,
    TableStudy,
    TuningStudy,
    plan_choices,
    plan_comparison,
    plan_table,
    resolve,
    summarize,
)
from mmb.training.loop.setup import find_device
from mmb.training.runs.run import command, data_title, folder_name
from mmb.training.runs.tables import as_text, make_table
from mmb.training.studies import reproduce
from mmb.training.studies.compare import comparison_table, plot_curves

_SHOWN = 10  # trials


def run_compare(options: argparse.Namespace, console: Console) -> None:
    """Train all runs, then show and write the table and the curves."""
    methods = list(dict.fromkeys(method.strip() for method in options.methods.split(",") if method.strip()))
    if not methods:
        raise UsageError(f"--methods needs names of methods, with commas; known are {', '.join(METHODS)}")
    fragment = suited_fragment(options, console, keep_batch=True)
    name = data_title(fragment["data"])
    folder = options.output or Path("runs") / folder_name(f"compare-{name}")
    planned = plan_comparison(fragment, methods, options.seeds, folder, options.controls)
    runs = [one.run for one in planned]
    recipe = runs[0].recipe
    counts = {"method": len(planned) // options.seeds, "seed": options.seeds}
    console.say(", ".join(f"{n} {what}{'s' * (n > 1)}" for what, n in counts.items()) + f", in {folder}")
    jobs = options.jobs
    if jobs is None:
        jobs = 1 if find_device(recipe.training.device).type == "cuda" else available_cores()
    train_and_show(f"comparing on {name}", planned, jobs, console)
    summary = summarize(runs)
    table = comparison_table(summary, recipe)
    write_whole(folder / "table.txt", as_text(table))
    write_whole(folder / "summary.json", json.dumps(summary, indent=1))
    plot_curves(runs, folder / "curves.png")
    console.show(table)
    if len(summary) > 1:
        show_judgment(console, lambda: best_of(runs))
    best = max(runs, key=_validation_gain)
    console.show(
        f"Curves: {folder / 'curves.png'}\n"
        f"Each task of the best run on validation rows: {best.path / 'table.txt'}\n"
        f"Watch it all: tensorboard --logdir {shlex.quote(str(folder))}\n"
        f"A page about all of it: {command('report', folder)}\n"
        f"Use it: {next_steps(best)[-1]}"
    )
    console.result({"output": str(folder), "methods": summary})


def _validation_gain(run: Run) -> float:
    """What a run attains on validation rows, the higher the better; the least where they cannot tell."""
    select = run.recipe.training.select
    value = run.result()["valid"][select]
    return -math.inf if value is None else METRICS[select].gain(value)


def run_tune(options: argparse.Namespace, console: Console) -> None:
    """Work on the study, then show its best trials."""
    recipe = resolve(suited_fragment(options, console))
    optuna = require("optuna", extra="tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # the progress bar tells more
    study = TuningStudy(options.output or default_folder(recipe, "tune"), recipe)
    console.say(f"tuning in {study.folder}; stop it at any time, the same command continues")
    with console.progress() as progress:
        study.run(options.trials, ProgressObserver(progress, console, many=True), options.jobs)
    show_trials(study, options.trials, console)


def show_trials(study: TuningStudy, trials: int, console: Console) -> None:
    """Show the best trials and where the recipe is."""
    records, ranked, metric = study.trials(), study.ranked(), study.recipe.training.select
    states = Counter(record["state"] for record in records)
    best = ranked[0] if ranked else None
    keys = list(study.recipe.grid)
    rows = [
        [record["number"], record["value"], *(str(record["params"][key]) for key in keys)]
        for record in ranked[:_SHOWN]
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


def run_reproduce(options: argparse.Namespace, console: Console) -> None:
    """Train what is missing, keep the logs and make the tables; or check tables against logs."""
    if options.check:
        check_tables(options, console)
        return
    if not options.tables:
        raise UsageError("name a table: table1, table2 or ablation; or use --check")
    names = [f"{data}/{table}" for data, table in product(options.data, options.tables)]
    wanted = [TableStudy.read(options.recipes, name) for name in names]
    planned: dict[str, PlannedRun] = {}  # by name: studies share some
    for study in wanted:
        if options.choose:
            runs = plan_choices(study, options.output, options.rows)
        else:
            runs = plan_table(study, options.seeds, options.output, options.results, options.rows)
        planned |= {one.name: one for one in runs}
    title = f"{'choices of ' if options.choose else ''}{', '.join(names)}"
    console.say(f"{title}: {len(planned)} runs in {options.output}")

    def ended(one: PlannedRun, error: Exception | None) -> None:
        outcome = f"{error}"
        if error is None:
            result = one.run.result()
            metric = result["selected_by"]
            outcome = f"validation {metric} {result['valid'][metric]:.4f} in {result['seconds']:.0f} s"
        console.say(f"{one.name}: {outcome}")

    try:
        runs = list(planned.values())
        failed = train_and_show(title, runs, options.jobs, console, ended=ended, only_best=True)
    finally:
        there = [one for study in wanted for one in reproduce.choices_there(study, options.output)]
        reproduce.keep_logs([*there, *runs], options.results)
    show_tables(wanted, options, console)
    if failed:
        each = "".join(f"\n  {name}: {type(error).__name__}: {error}" for name, error in failed.items())
        raise RunError(
            f"{len(failed)} of {len(planned)} runs failed; error.txt in their folders says where:{each}"
        )
    console.result({"studies": {name: str(options.results / name) for name in names}})


def show_tables(wanted: list[TableStudy], options: argparse.Namespace, console: Console) -> None:
    """Show what was tried, or make all tables from the logs and show those that were asked for."""
    if options.choose:
        for study in wanted:
            console.show(reproduce.choices_table(study, options.results))
        return
    studies = reproduce.studies_with_logs(options.recipes, options.results)
    reproduce.write_results(studies, options.results)
    for study in wanted:
        if study in studies:
            console.show(reproduce.document(study, options.results))


def check_tables(options: argparse.Namespace, console: Console) -> None:
    """Make the tables again from the logs, and fail if one differs from the file."""
    studies = reproduce.studies_with_logs(options.recipes, options.results)
    if not studies:
        raise RunError(f"there are no logs of a study in {options.results}")
    if differing := [str(path) for path in reproduce.differences(studies, options.results)]:
        raise RunError(
            f"not what the logs give: {', '.join(differing)}; `mmb reproduce TABLE` makes them again"
        )
    checked = [study.name for study in studies]
    console.show(f"{', '.join(checked)}: tables and curves are what the logs give")
    console.result({"checked": checked})
