"""`mmb reproduce`: the paper's tables from recipes, and from committed logs."""

from __future__ import annotations

import argparse
from pathlib import Path

from mmb.cli.console import Console
from mmb.cli.parser import UsageError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("table", nargs="?", help="table1, table2 or ablation")
    parser.add_argument("--data", default="molpcba", help="data set")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
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
    elif options.table is None:
        raise UsageError("name a table: table1, table2 or ablation; or use --check")
    elif options.seeds < 1:
        raise UsageError(f"--seeds must be at least 1, got {options.seeds}")
    else:
        train(options, console)


def train(options: argparse.Namespace, console: Console) -> None:
    """Train the runs that are not finished, keep their logs, make the table."""
    from mmb.cli.watching import ProgressWatch
    from mmb.training.compare import train_all
    from mmb.training.reproduce import Study, document, keep_logs, plan, with_logs, write_results

    study = Study.read(options.recipes, f"{options.data}/{options.table}")
    runs = plan(study, options.seeds, options.output)
    console.say(f"{study.name}: {len(runs)} runs in {options.output}")
    with console.progress() as progress:
        bar = progress.add_task(study.name, total=len(runs), unit="runs", numbers="")
        watch = ProgressWatch(progress, console)
        train_all(runs, 1, watch, lambda done: progress.update(bar, completed=done))
    keep_logs(runs, options.output, options.results)
    write_results(with_logs(options.recipes, options.results), options.results)
    console.show(document(study, options.results))
    console.result({"study": study.name, "results": str(options.results / study.name)})


def check(options: argparse.Namespace, console: Console) -> None:
    """Make the tables again from the logs, and fail if one differs from the file."""
    from mmb.training.reproduce import differences, with_logs
    from mmb.training.run import RunError

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
