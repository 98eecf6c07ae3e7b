"""`mmb reproduce`: the paper's tables from recipes, and from committed logs."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from mmb.cli.console import Console
from mmb.cli.parser import UsageError

if TYPE_CHECKING:
    from mmb.training.studies.reproduce import Planned, Study


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="table1, table2 or ablation; or several")
    parser.add_argument("--data", nargs="+", default=["molpcba"], help="data set; or several")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="run these rows only")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, each a process of its own")
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
        return
    if not options.tables:
        raise UsageError("name a table: table1, table2 or ablation; or use --check")
    for name in ("seeds", "jobs"):
        if getattr(options, name) < 1:
            raise UsageError(f"--{name} must be at least 1, got {getattr(options, name)}")
    if options.choose:
        choose(options, console)
    else:
        make_tables(options, console)


def make_tables(options: argparse.Namespace, console: Console) -> None:
    """Train the runs of the tables that are not finished, keep their logs, make the tables."""
    from mmb.training.studies.reproduce import (
        choices_there,
        document,
        keep_logs,
        plan,
        with_logs,
        write_results,
    )

    wanted = wanted_studies(options)
    for study in wanted:
        keep_logs(choices_there(study, options.output), options.results)  # they tell which recipes to run
    planned = merged(
        plan(study, options.seeds, options.output, options.results, options.rows) for study in wanted
    )
    failed = train(planned, ", ".join(study.name for study in wanted), options, console)
    studies = with_logs(options.recipes, options.results)
    write_results(studies, options.results)
    for study in wanted:
        if study in studies:
            console.show(document(study, options.results))
    complain(failed, len(planned))
    report(wanted, options.results, console)


def choose(options: argparse.Namespace, console: Console) -> None:
    """Try the choices of each row that were not tried yet, and show what is best on the validation rows."""
    from mmb.training.studies.reproduce import choices_table, plan_choices

    wanted = wanted_studies(options)
    planned = merged(plan_choices(study, options.output, options.rows) for study in wanted)
    failed = train(planned, f"choices of {', '.join(study.name for study in wanted)}", options, console)
    for study in wanted:
        console.show(choices_table(study, options.results))
    complain(failed, len(planned))
    report(wanted, options.results, console)


def wanted_studies(options: argparse.Namespace) -> list[Study]:
    """The tables that are asked for, of each data set."""
    from mmb.training.studies.reproduce import Study

    pairs = product(options.data, options.tables)
    return [Study.read(options.recipes, f"{data}/{table}") for data, table in pairs]


def merged(plans: Iterable[list[Planned]]) -> list[Planned]:
    """All runs of several tables, those that they share once."""
    return list({one.name: one for plan in plans for one in plan}.values())


def report(wanted: list[Study], results: Path, console: Console) -> None:
    """Say where logs are, for programs."""
    console.result({"studies": {study.name: str(results / study.name) for study in wanted}})


def train(
    planned: list[Planned], title: str, options: argparse.Namespace, console: Console
) -> dict[str, str]:
    """Train what is not finished, and keep the log of each run as soon as it ends; returns what failed."""
    from mmb.cli.watching import ProgressWatch
    from mmb.training.studies.reproduce import keep_logs, train_all

    console.say(f"{title}: {len(planned)} runs in {options.output}")
    keep_logs(planned, options.results)
    with console.progress() as progress:
        done = sum(one.run.finished for one in planned)
        bar = progress.add_task(title, total=len(planned), completed=done, unit="runs", numbers="")

        def ended(one: Planned, problem: str | None) -> None:
            keep_logs([one], options.results)
            progress.advance(bar)
            if problem is None:
                result = one.run.result()
                value = f"{result['selected_by']} {result['valid'][result['selected_by']]:.4f}"
                problem = f"validation {value} in {result['seconds']:.0f} s"
            console.say(f"{one.name}: {problem}")

        return train_all(planned, options.jobs, ProgressWatch(progress, console), ended)


def complain(failed: dict[str, str], runs: int) -> None:
    """Fail if a run has failed.

    Raises:
        RunError: Naming each, and why.
    """
    from mmb.training.runs.run import RunError

    if failed:
        each = "".join(f"\n  {name}: {problem}" for name, problem in failed.items())
        raise RunError(f"{len(failed)} of {runs} runs failed; error.txt in their folders says where:{each}")


def check(options: argparse.Namespace, console: Console) -> None:
    """Make the tables again from the logs, and fail if one differs from the file."""
    from mmb.training.runs.run import RunError
    from mmb.training.studies.reproduce import differences, with_logs

    studies = with_logs(options.recipes, options.results)
    if not studies:
        raise RunError(f"there are no logs of a study in {options.results}")
    if differing := [str(path) for path in differences(studies, options.results)]:
        raise RunError(
            f"not what the logs give: {', '.join(differing)}; `mmb reproduce TABLE` makes them anew"
        )
    checked = [study.name for study in studies]
    console.show(f"{', '.join(checked)}: tables and curves are what the logs give")
    console.result({"checked": checked})
