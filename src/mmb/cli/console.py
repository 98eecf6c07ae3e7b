"""What is shown: tables on stdout, progress and messages on stderr, or one JSON value on stdout."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from mmb._extras import require


class Console:
    """Shows things to a person, or to a machine if `json` is set.

    Attributes:
        json: Print nothing but the result, as JSON.
    """

    def __init__(self) -> None:
        self.json = False

    def show(self, table: Any) -> None:
        """Print a table or a text, unless for a machine."""
        if isinstance(table, str) and not self.json:
            print(table)
        elif not self.json:
            require("rich.console", extra="training").Console().print(table)

    def result(self, value: Any) -> None:
        """Print the result, if for a machine."""
        if self.json:
            print(json.dumps(value))

    def say(self, message: str) -> None:
        """Tell a person what is going on."""
        if not self.json:
            self._errors.print(message, style="dim", highlight=False, markup=False, soft_wrap=True)

    def warn(self, message: str) -> None:
        """Tell of something that may be wrong, also beside JSON."""
        print(f"warning: {message}", file=sys.stderr)

    def fail(self, message: str) -> None:
        """Tell why the command failed; of processes that train together, the first one tells machines."""
        if self.json and os.environ.get("RANK", "0") == "0":
            print(json.dumps({"error": message}))
        print(f"mmb: error: {message}", file=sys.stderr)

    @contextmanager
    def progress(self) -> Iterator[Any]:
        """A progress display (rich) on stderr; its tasks have a `unit` and `numbers` to be shown.

        To a machine it stays dark.
        """
        rich = require("rich.progress", extra="training")
        columns = (
            rich.TextColumn("{task.description}"),
            rich.BarColumn(),
            rich.TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[unit]}"),
            rich.TimeRemainingColumn(),
            rich.TextColumn("{task.fields[numbers]}"),
        )
        with rich.Progress(*columns, console=self._errors, disable=self.json, transient=True) as progress:
            yield progress

    @cached_property
    def _errors(self) -> Any:
        return require("rich.console", extra="training").Console(stderr=True)
