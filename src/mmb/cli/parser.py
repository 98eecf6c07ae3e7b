"""The commands and their options."""

import argparse
import importlib
from collections.abc import Callable, Sequence
from typing import NoReturn

from mmb._names import nearest

COMMANDS = {
    "data": "List, describe, get and prepare data sets.",
    "train": "Train a model from a recipe, or from a data set and a method.",
    "resume": "Continue a run that was stopped.",
    "compare": "Train several methods on the same data over several seeds, and show them side by side.",
    "evaluate": "Evaluate the selected weights of a run.",
    "predict": "Score new rows with a run, and decide at each task's threshold.",
    "export": "Export a run's model to torch.export and ONNX, and check that they agree.",
    "report": "Write a page about one or more runs that works offline.",
    "reproduce": "Run the recipes behind a table of the paper and make it, or check it against the logs.",
    "tune": "Search a recipe's options for the best validation result.",
}

MODULES = {
    "data_commands": ("data",),
    "training_commands": ("train", "resume"),
    "run_commands": ("evaluate", "predict", "export", "report"),
    "study_commands": ("compare", "tune", "reproduce"),
}


class UsageError(Exception):
    """The command line was not understood."""


class Parser(argparse.ArgumentParser):
    """A parser that raises instead of exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        raise UsageError(f"{message}; see `{self.prog} --help`")


def parse(arguments: Sequence[str]) -> tuple[Callable[..., None], argparse.Namespace]:
    """The function of the command, which takes options and a console, and its options.

    A command whose options have `overrides` also takes `key=value` arguments anywhere.
    """
    chosen = arguments[0] if arguments else ""
    if chosen.startswith("-") and chosen not in ("-h", "--help"):
        raise UsageError(f"write options after the command: mmb COMMAND {chosen} ...; see `mmb --help`")
    if chosen not in COMMANDS and not chosen.startswith("-"):
        problem = f"there is no command {chosen!r}" if chosen else "a command is needed"
        raise UsageError(problem + nearest(chosen, COMMANDS))
    parser = Parser(prog="mmb", description="Multi-task AUC and partial AUC maximization.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    subs = {name: commands.add_parser(name, help=text, description=text) for name, text in COMMANDS.items()}
    if chosen in COMMANDS:  # only this one's module is imported: help stays fast
        name = next(name for name, commands in MODULES.items() if chosen in commands)
        module = importlib.import_module(f"mmb.cli.{name}")
        getattr(module, f"{chosen}_options")(subs[chosen])
        common = subs[chosen].add_argument_group("output")
        common.add_argument("--json", action="store_true", help="print one JSON value and nothing else")
        common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    options, rest = parser.parse_known_args(arguments)
    takes_overrides = hasattr(options, "overrides")
    overrides = [text for text in rest if takes_overrides and "=" in text and not text.startswith("-")]
    for text in rest:
        if text not in overrides:
            known = [option for action in subs[chosen]._actions for option in action.option_strings]
            raise UsageError(f"{text!r} is not understood{nearest(text, known)}")
    if takes_overrides:
        options.overrides = [*options.overrides, *overrides]
    return getattr(module, f"run_{chosen}"), options


def positive(text: str) -> int:
    """The type of an option that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return int(text)


def add_overrides(
    parser: argparse.ArgumentParser,
    meaning: str = "change a key of the recipe, such as optimizer.lr=0.01; `mmb train --keys` lists them",
) -> None:
    """Let a command take `key=value` arguments."""
    parser.add_argument("overrides", nargs="*", metavar="key=value", help=meaning)
