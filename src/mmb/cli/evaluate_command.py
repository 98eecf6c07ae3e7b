"""`mmb evaluate`: how good the selected weights of a run are."""

from __future__ import annotations

import argparse
from pathlib import Path

from mmb.cli.console import Console


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--split", choices=["train", "valid", "test"], default="test", help="which rows")
    parser.add_argument("--max-fpr", type=float, help="limit of the partial AUC; by default that of the run")


def run(options: argparse.Namespace, console: Console) -> None:
    """Evaluate and show a table."""
    from mmb.metrics.titles import TITLES, column_titles, definition
    from mmb.training import Run, evaluate_run
    from mmb.training.runs.tables import make_table

    found = evaluate_run(Run.open(options.run), options.split, options.max_fpr)
    rows = [list(row) for row in zip(*(found["tasks"][key] for key in ("name", *TITLES)), strict=True)]
    rows.append(["mean", *(found["mean"][key] for key in TITLES)])
    columns = ["task", *column_titles(found["max_fpr"])]
    title = f"{options.run}: {options.split} rows"
    console.show(make_table(title, columns, rows, definition(found["max_fpr"])))
    console.result(found)
