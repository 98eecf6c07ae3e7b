"""`mmb export`: a run's model for other programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from mmb.cli.console import Console


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("--output", type=Path, help="folder to write to; by default RUN/export")


def run(options: argparse.Namespace, console: Console) -> None:
    """Export, compare, and show the files."""
    from mmb.training import Run, export_run
    from mmb.training.runs.tables import make_table

    opened = Run.open(options.run)
    found = export_run(opened, options.output or opened.path / "export")
    rows = [[kind, path, f"{found['largest_difference'][kind]:.1e}"] for kind, path in found["files"].items()]
    caption = f"Largest difference of a logit from the model itself, over {found['rows_compared']} rows"
    console.show(make_table("Exported", ["format", "file", "difference"], rows, caption))
    console.result(found)
