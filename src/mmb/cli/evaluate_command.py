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
    from mmb.training import Run
    from mmb.training.loop.outcome import evaluate_run
    from mmb.training.runs.tables import make_table

    found = evaluate_run(Run.open(options.run), options.split, options.max_fpr)
    tasks, keys = found["tasks"], ["auc", "pauc", "ap"]
    rows = [list(row) for row in zip(*(tasks[key] for key in ("name", *keys)), strict=True)]
    rows.append(["mean", *(found["mean"][key] for key in keys)])
    fpr = found["max_fpr"]
    caption = f"pAUC: FPR <= {fpr:g}, McClish-standardised"
    columns = ["task", "AUC", f"pAUC {fpr:g}", "AP"]
    console.show(make_table(f"{options.run}: {options.split} rows", columns, rows, caption))
    console.result(found)
