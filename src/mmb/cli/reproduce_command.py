"""`mmb reproduce`: the paper's tables from recipes, and from committed logs."""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from mmb.cli.console import Console
from mmb.cli.parser import UsageError, positive

if TYPE_CHECKING:
    from mmb.training import TableStudy


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="table1, table2 or ablation; or several")
    parser.add_argument("--data", nargs="+", default=["molpcba"], help="data set; or several")
    parser.add_argument("--seeds", type=positive, default=3, help="number of seeds")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="run these rows only")
    parser.add_argument("--jobs", type=positive, default=1, help="runs at a time, each in its own process")
    parser.add_argument(
        "--choose",
        action="store_true",
        help="try the choices of each row, on validation rows alone; the table then has the best",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="train nothing: make all tables again from the logs, and fail if one differs",
    )
    parser.add_argument("--output", type=Path, default=Path("runs/reproduce"), help="folder of the runs")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of logs and tables")
    parser.add_argument(
        "--recipes", type=Path, default=Path("recipes/reproduce"), help="folder of the studies"
    )


def run(options: argparse.Namespace, console: Console) -> None:
    """Train what is missing, keep the logs and make the tables; or check tables against logs."""
    if options.check:
        check(options, console)
        return
    if not options.tables:
        raise UsageError("name a table: table1, table2 or ablation; or use --check")
    from mmb.cli.watching import train_and_show
    from mmb.training import PlannedRun, RunError, TableStudy, plan_choices, plan_table
    from mmb.training.studies.reproduce import choices_there, keep_logs

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
        there = [one for study in wanted for one in choices_there(study, options.output)]
        keep_logs([*there, *runs], options.results)
    show(wanted, options, console)
    if failed:
        each = "".join(f"\n  {name}: {type(error).__name__}: {error}" for name, error in failed.items())
        raise RunError(
            f"{len(failed)} of {len(planned)} runs failed; error.txt in their folders says where:{each}"
        )
    console.result({"studies": {name: str(options.results / name) for name in names}})


def show(wanted: list[TableStudy], options: argparse.Namespace, console: Console) -> None:
    """Show what was tried, or make all tables from the logs and show those that were asked for."""
    from mmb.training.studies.reproduce import choices_table, document, studies_with_logs, write_results

    if options.choose:
        for study in wanted:
            console.show(choices_table(study, options.results))
        return
    studies = studies_with_logs(options.recipes, options.results)
    write_results(studies, options.results)
    for study in wanted:
        if study in studies:
            console.show(document(study, options.results))


def check(options: argparse.Namespace, console: Console) -> None:
    """Make the tables again from the logs, and fail if one differs from the file."""
    from mmb.training import RunError
    from mmb.training.studies.reproduce import differences, studies_with_logs

    studies = studies_with_logs(options.recipes, options.results)
    if not studies:
        raise RunError(f"there are no logs of a study in {options.results}")
    if differing := [str(path) for path in differences(studies, options.results)]:
        raise RunError(
            f"not what the logs give: {', '.join(differing)}; `mmb reproduce TABLE` makes them again"
        )
    checked = [study.name for study in studies]
    console.show(f"{', '.join(checked)}: tables and curves are what the logs give")
    console.result({"checked": checked})
