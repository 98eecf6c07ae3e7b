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
    from mmb.cli.train_command import train_one
    from mmb.training import Run
    from mmb.training.loop.setup import find_device
    from mmb.training.processes.group import joined

    opened = Run.open(options.run)
    with joined(find_device(opened.recipe.training.device)) as ranks:
        if opened.finished and ranks.is_main:
            console.say(f"the run in {opened.path} is finished already")
        with opened.own_data():
            train_one(opened, console, ranks)
