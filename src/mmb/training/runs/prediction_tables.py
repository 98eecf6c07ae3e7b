"""Tables of predictions: which columns they have, and how they are written, as CSV or Parquet."""

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mmb._atomic_files import replacing, whole_file
from mmb._extras import require
from mmb.training.runs.run import RunError

_FORMULA = ("=", "+", "-", "@")  # how a formula starts
_FIRST = ["row", "usable", "problem"]
_PARQUET = (".parquet", ".pq")


def shown_name(task: str) -> str:
    """The name of a task as a column; one that a spreadsheet would run as a formula gets a quote in front."""
    return f"'{task}" if task.startswith(_FORMULA) else task


def task_columns(task_names: Sequence[str]) -> list[str]:
    """The columns of the tasks: of each its score, probability and decision.

    RunError if names of tasks clash with those of other columns.
    """
    header = []
    for shown in map(shown_name, task_names):
        header += [shown, f"{shown}:probability", f"{shown}:decision"]
    every = [*_FIRST, *header]
    if twice := sorted({name for name in every if every.count(name) > 1}):
        raise RunError(
            f"a table of predictions would have columns {twice} twice: rename the tasks and train again"
        )
    return header


def own_columns(names: Sequence[str], tasks: Sequence[str]) -> list[str]:
    """What the columns of the input are called in the output: `input:NAME` where the name is taken."""
    taken = {*_FIRST, *tasks}
    return [f"input:{name}" if name in taken else name for name in names]


Writer = Callable[[Sequence[Sequence[Any]], dict[str, list[str]], Sequence[Sequence[Any]]], None]
"""Writes rows: the first columns, those of the input by name, and those of the tasks."""


@contextmanager
def writing_table(target: Path, tasks: Sequence[str]) -> Iterator[Writer]:
    """Write a table as a whole; Parquet if its name ends so, else CSV."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix.lower() in _PARQUET:
        frames = require("polars", extra="table")
        parts: list[Any] = []

        def collect(first: Sequence[Sequence[Any]], own: dict[str, list[str]], values: Sequence[Any]) -> None:
            names = [*_FIRST, *own_columns(list(own), tasks), *tasks]
            parts.append(frames.DataFrame(dict(zip(names, [*first, *own.values(), *values], strict=True))))

        yield collect
        with replacing(target) as place:
            frames.concat(parts, how="vertical_relaxed").write_parquet(place)
        return
    with whole_file(target) as file:
        writer = csv.writer(file, lineterminator="\n")
        begun = False

        def write(first: Sequence[Sequence[Any]], own: dict[str, list[str]], values: Sequence[Any]) -> None:
            nonlocal begun
            if not begun:
                writer.writerow([*_FIRST, *own_columns(list(own), tasks), *tasks])
                begun = True
            cells = [[_text(value) for value in column] for column in values]
            writer.writerows(zip(*first, *own.values(), *cells, strict=True))

        yield write


def _text(value: Any) -> Any:
    return f"{value:.8g}" if isinstance(value, float) else "" if value is None else int(value)
