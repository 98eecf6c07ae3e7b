"""Output: tables on stdout, progress and messages on stderr; or one JSON value on stdout."""

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

from mmb._extras import require
from mmb.cli.progress_lines import ProgressLines


class Console:
    """Shows things to a person; or, if `json` is set, prints the result for a machine and nothing else."""

    json = False

    def __init__(self) -> None:
        self._warned: set[str] = set()
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="replace")  # a terminal that is not UTF-8 shows question marks

    def show(self, table: Any) -> None:
        """Print a table or a text, unless for a machine."""
        if self.json:
            return
        with _stdout():
            if isinstance(table, str):
                print(table, flush=True)
            else:
                from mmb.training.runs.tables import print_table

                print_table(table, require("rich.console", extra="training").Console())

    def result(self, value: Any) -> None:
        """Print the result, if for a machine."""
        if self.json:
            with _stdout():
                print(json.dumps(value), flush=True)

    def say(self, message: str) -> None:
        """Print a message to a person."""
        if not self.json:
            self._errors.print(message, style="dim", highlight=False, markup=False, soft_wrap=True)

    def warn(self, message: str) -> None:
        """Warn once of something that may be wrong, also with JSON output."""
        if message not in self._warned:
            self._warned.add(message)
            print(f"warning: {message}", file=sys.stderr)

    def fail(self, message: str) -> None:
        """Say why the command failed; of processes that train together, only the first prints JSON."""
        if self.json and os.environ.get("RANK", "0") == "0":
            with suppress(OSError), _stdout():
                print(json.dumps({"error": message}), flush=True)
        print(f"mmb: error: {message}", file=sys.stderr)

    @contextmanager
    def progress(self) -> Iterator[Any]:
        """A progress display (rich) on stderr, unless for a machine; its tasks have `unit` and `numbers`.

        Without a terminal, it is a line now and then.
        """
        if not self.json and not self._errors.is_terminal:
            yield ProgressLines(self.say)
            return
        rich = require("rich.progress", extra="training")
        column = require("rich.table", extra="training").Column
        columns = (  # they fit 80 characters, and numbers are cut where they do not
            rich.TextColumn("{task.description}", table_column=column(no_wrap=True)),
            rich.BarColumn(bar_width=12),
            rich.TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[unit]}"),
            rich.TimeRemainingColumn(),
            rich.TextColumn(
                "{task.fields[numbers]}", table_column=column(no_wrap=True, overflow="ellipsis", ratio=1)
            ),
        )
        with rich.Progress(*columns, console=self._errors, disable=self.json, transient=True) as progress:
            yield progress

    @cached_property
    def _errors(self) -> Any:
        return require("rich.console", extra="training").Console(stderr=True)


@contextmanager
def _stdout() -> Iterator[None]:
    """Around writes to stdout: a failure is raised, and the rest of the output is dropped."""
    try:
        yield
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        from mmb._atomic_files import WriteError

        raise WriteError(error.errno, error.strerror, "to standard output") from error
