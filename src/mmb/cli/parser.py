"""The commands: which there are, and from words to the function that runs one."""

import argparse
import importlib
from collections.abc import Callable, Sequence
from typing import NoReturn

from mmb._names import nearest
from mmb._version import __version__
from mmb.cli import options as command_options
from mmb.cli.console import Console
from mmb.cli.usage import UsageError
from mmb.cli.words import options_as_keys, understand

COMMANDS = {
    "data": "List, describe, get and prepare data sets.",
    "train": "Train a model from a recipe, or from a data set and a method.",
    "resume": "Continue a run that was stopped.",
    "compare": "Train several methods on the same data over several seeds, and show them side by side.",
    "evaluate": "Evaluate the selected weights of a run.",
    "predict": "Score new rows with a run, and decide at each task's threshold.",
    "export": "Export a run's model to torch.export and ONNX, and check that they agree.",
    "watch": "Show a page, on this machine alone, that follows runs while they train.",
    "report": "Write a page about one or more runs that works offline.",
    "reproduce": "Run the recipes behind a table of the paper and make it, or check it against the logs.",
    "tune": "Search a recipe's options for the best validation result.",
    "completion": "Print a script that completes commands, options, names and keys in your shell.",
}

MODULES = {
    "data_commands": ("data",),
    "training_commands": ("train", "resume"),
    "run_commands": ("evaluate", "predict", "export", "watch", "report"),
    "study_commands": ("compare", "tune", "reproduce"),
    "completion": ("completion",),
}

_MEANINGS = {  # other words for a command
    **dict.fromkeys(["fit", "run", "start", "learn", "new"], "train"),
    **dict.fromkeys(["continue", "restart"], "resume"),
    **dict.fromkeys(["eval", "test", "validate", "metrics"], "evaluate"),
    **dict.fromkeys(["infer", "inference", "score", "apply", "classify"], "predict"),
    **dict.fromkeys(["onnx", "save", "convert", "deploy"], "export"),
    **dict.fromkeys(["follow", "live", "monitor", "dashboard", "tensorboard"], "watch"),
    **dict.fromkeys(["plot", "html", "page", "show", "summary", "view"], "report"),
    **dict.fromkeys(["list", "dataset", "datasets", "download", "describe", "prepare", "get"], "data"),
    **dict.fromkeys(["search", "hpo", "optimize", "sweep", "grid"], "tune"),
    **dict.fromkeys(["benchmark", "bench", "versus"], "compare"),
}


class Parser(argparse.ArgumentParser):
    """A parser that raises instead of exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        raise UsageError(f"{message}; see `{self.prog} --help`")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the command in the words after `mmb`.

    A command whose options have `overrides` also takes `key=value` arguments anywhere.
    """
    chosen = arguments[0] if arguments else ""
    known_first = ("-h", "--help", "-V", "--version")
    if chosen.startswith("-") and chosen not in known_first:
        raise UsageError(f"write options after the command: mmb COMMAND {chosen} ...; see `mmb --help`")
    if chosen == "help":
        arguments, chosen = ["--help"], "--help"
    if chosen not in COMMANDS and not chosen.startswith("-"):
        if not chosen:
            raise UsageError("a command is needed" + nearest("", COMMANDS))
        raise UsageError(f"there is no command {chosen!r}{nearest(_MEANINGS.get(chosen, chosen), COMMANDS)}")
    parser, subs = make_parsers([chosen] if chosen in COMMANDS else [])
    words = list(arguments[1:])
    if chosen in subs and any(action.dest == "overrides" for action in subs[chosen]._actions):
        words = options_as_keys(words, subs[chosen]._option_string_actions)
    options, rest = parser.parse_known_args([chosen, *words] if arguments else [])
    takes_overrides = hasattr(options, "overrides")
    overrides = [text for text in rest if takes_overrides and not text.startswith("-")]
    for text in rest:
        if text not in overrides:
            raise UsageError(
                f"{text!r} is not understood{nearest(text, subs[chosen]._option_string_actions)}"
            )
    if takes_overrides:
        options.overrides = [*options.overrides, *overrides]
    understand(chosen, options)
    return options


def function_of(options: argparse.Namespace) -> Callable[[argparse.Namespace, Console], None]:
    """The function that runs the command of some options; its module is imported here."""
    if getattr(options, "keys", False):
        return importlib.import_module("mmb.cli.keys_command").run_keys
    if getattr(options, "replicates", None) or getattr(options, "ensemble", None):
        return importlib.import_module("mmb.cli.repeat_commands").run_replicates
    if getattr(options, "folds", None):
        return importlib.import_module("mmb.cli.repeat_commands").run_folds
    module = next(name for name, commands in MODULES.items() if options.command in commands)
    return getattr(importlib.import_module(f"mmb.cli.{module}"), f"run_{options.command}")


def make_parsers(names: Sequence[str]) -> tuple[Parser, dict[str, Parser]]:
    """The parser of the command line, and those of its commands, of which some have their options."""
    parser = Parser(
        prog="mmb", description="Multi-task AUC and partial AUC maximization.", allow_abbrev=False
    )
    parser.add_argument("-V", "--version", action="version", version=f"mmb {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    subs = {
        name: commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        for name, text in COMMANDS.items()
    }
    for name in names:
        getattr(command_options, f"{name}_options")(subs[name])
        common = subs[name].add_argument_group("output")
        common.add_argument("--json", action="store_true", help="print one JSON value and nothing else")
        common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser, subs
