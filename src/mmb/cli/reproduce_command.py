"""`mmb reproduce`: the paper's tables from recipes, and from committed logs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from mmb.cli.console import Console
from mmb.cli.parser import UsageError, positive

if TYPE_CHECKING:
    from mmb.training import PlannedRun, TableStudy


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
    """Run what is missing of a study and make its table; or check tables against logs."""
    if options.check:
        check(options, console)
    elif not options.tables:
        raise UsageError("name a table: table1, table2 or ablation; or use --check")
    elif options.choose:
        choose(options, console)
    else:
        make_tables(options, console)


def make_tables(options: argparse.Namespace, console: Console) -> None:
    """Train the runs of the tables that are not finished, keep their logs, make the tables."""
    from mmb.training.studies.reproduce import document, plan_table, studies_with_logs, write_results

    def plan(study: TableStudy) -> list[PlannedRun]:
        return plan_table(study, options.seeds, options.output, options.results, options.rows)

    def show(wanted: list[TableStudy]) -> None:
        studies = studies_with_logs(options.recipes, options.results)
        write_results(studies, options.results)
        for study in wanted:
            if study in studies:
                console.show(document(study, options.results))

    train(plan, "", show, options, console)


def choose(options: argparse.Namespace, console: Console) -> None:
    """Try the choices of each row that were not tried yet, and show what is best on the validation rows."""
    from mmb.training.studies.reproduce import choices_table, plan_choices

    def plan(study: TableStudy) -> list[PlannedRun]:
        return plan_choices(study, options.output, options.rows)

    def show(wanted: list[TableStudy]) -> None:
        for study in wanted:
            console.show(choices_table(study, options.results))

    train(plan, "choices of ", show, options, console)


def train(
    plan: Callable[[TableStudy], list[PlannedRun]],
    title: str,
    show: Callable[[list[TableStudy]], None],
    options: argparse.Namespace,
    console: Console,
) -> None:
    """Train what is not finished of the studies that are asked for, keep the logs, and show the outcome.

    Raises:
        RunError: If a run has failed, naming each, and why.
    """
    from mmb.cli.watching import train_and_show
    from mmb.training import RunError, TableStudy
    from mmb.training.studies.reproduce import choices_there, keep_logs

    names = [f"{data}/{table}" for data, table in product(options.data, options.tables)]
    wanted = [TableStudy.read(options.recipes, name) for name in names]
    planned = list({one.name: one for study in wanted for one in plan(study)}.values())  # shared ones once
    title += ", ".join(names)
    console.say(f"{title}: {len(planned)} runs in {options.output}")

    def ended(one: PlannedRun, error: Exception | None) -> None:
        if error is None:
            result = one.run.result()
            value = f"{result['selected_by']} {result['valid'][result['selected_by']]:.4f}"
            console.say(f"{one.name}: validation {value} in {result['seconds']:.0f} s")
        else:
            console.say(f"{one.name}: {error}")

    try:
        failed = train_and_show(title, planned, options.jobs, console, ended=ended, only_best=True)
    finally:
        there = [one for study in wanted for one in choices_there(study, options.output)]
        keep_logs([*there, *planned], options.results)
    show(wanted)
    if failed:
        each = "".join(f"\n  {name}: {type(error).__name__}: {error}" for name, error in failed.items())
        raise RunError(
            f"{len(failed)} of {len(planned)} runs failed; error.txt in their folders says where:{each}"
        )
    console.result({"studies": {name: str(options.results / name) for name in names}})


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
