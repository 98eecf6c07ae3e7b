"""`mmb report`: a page about one or more runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from mmb.cli.console import Console


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="folder of a run, or one with runs in it"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), help="file to write")
    parser.add_argument(
        "--max-fpr", type=float, help="limit of the partial AUC; by default that of the first run"
    )


def run(options: argparse.Namespace, console: Console) -> None:
    """Write the page and show its verdicts."""
    from mmb.report import write_report
    from mmb.report.run_groups import find_runs

    runs = find_runs(options.runs)
    content = write_report(runs, options.output, options.max_fpr, console.say)
    for entry in content["runs"]:
        console.show(f"{entry['name']}: {entry['verdict']}")
    console.show(f"Page: {options.output}")
    verdicts = {entry["name"]: entry["verdict"] for entry in content["runs"]}
    console.result(
        {"output": str(options.output), "runs": [str(one.path) for one in runs], "verdicts": verdicts}
    )
