"""`mmb resume`: continue a run that was stopped."""

from __future__ import annotations

import argparse
from pathlib import Path

from mmb.cli.console import Console


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("run", type=Path, help="folder of the run")


def run(options: argparse.Namespace, console: Console) -> None:
    """Continue the run where its newest whole checkpoint is."""
    from mmb.cli.train_command import show_result
    from mmb.cli.watching import ProgressWatch
    from mmb.training import Run, train

    opened = Run.open(options.run)
    if opened.finished:
        console.say(f"the run in {opened.path} is finished already")
    with console.progress() as progress:
        result = train(opened, ProgressWatch(progress, console))
    show_result(opened.path, result, console)
