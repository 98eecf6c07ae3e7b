"""`mmb predict`: scores and decisions for new rows."""

from __future__ import annotations

import argparse
from pathlib import Path

from mmb.cli.console import Console


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("--input", type=Path, required=True, help="CSV file with the columns of the data")
    parser.add_argument("--output", type=Path, required=True, help="CSV file to write, a line per row")
    parser.add_argument(
        "--fpr",
        type=float,
        help="false positive rate of the decisions, as on the validation rows; by default that of the run",
    )


def run(options: argparse.Namespace, console: Console) -> None:
    """Predict, and show how many rows are called positive."""
    from mmb.training import Run, predict_file
    from mmb.training.runs.tables import make_table

    found = predict_file(Run.open(options.run), options.input, options.output, options.fpr)
    rows = [[name, count] for name, count in found["positive"].items()]
    title = f"called positive among {found['rows']} rows, at FPR {found['fpr']:g}"
    console.show(make_table(title, ["task", "rows"], rows))
    if found["unusable"]:
        console.warn(f"{found['unusable']} rows could not be read; they are flagged with usable = 0")
    if found["untrained"]:
        names = ", ".join(found["untrained"])
        console.warn(f"{names}: no positives or no negatives to train on, so these tasks' cells are blank")
    console.say(f"scores and decisions are in {options.output}")
    console.result(found)
