"""Tables of predictions: which columns they have, and how they are written, as CSV or Parquet."""

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mmb._atomic_files import replacing
from mmb._extras import require
from mmb.training.runs.run import RunError

_FORMULA = ("=", "+", "-", "@")  # how a formula starts
_FIRST = ["row", "usable", "problem"]
_PARQUET, _TEXT = (".parquet", ".pq"), (".csv", ".tsv", ".txt", "")
_TOGETHER = 1 << 16  # rows of Parquet that are in memory


def shown_name(task: str) -> str:
    """The name of a task as a column: `task:NAME` if the name is that of another column of predictions.

    One that a spreadsheet would run as a formula gets a quote in front.
    """
    if task in _FIRST:
        return f"task:{task}"
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
    """Write a table as a whole, some rows in memory at a time: CSV, TSV or Parquet, by its name.

    ValueError if its name is that of something else, such as a workbook. Devices and pipes get CSV.
    """
    suffix = target.suffix.lower()
    if suffix not in (*_PARQUET, *_TEXT) and (target.is_file() or not target.exists()):
        named = target.with_name(f"{target.name.partition('.')[0]}.csv")
        raise ValueError(f"output: predictions are written as CSV, TSV or Parquet; got {target}, try {named}")
    target.parent.mkdir(parents=True, exist_ok=True)
    kind = (
        _writing_parquet if suffix in _PARQUET else partial(_writing_text, "\t" if suffix == ".tsv" else ",")
    )
    with replacing(target) as place, kind(place, tasks) as write:
        yield write


@contextmanager
def _writing_text(separator: str, place: Path, tasks: Sequence[str]) -> Iterator[Writer]:
    with place.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=separator, lineterminator="\n")
        begun = False

        def write(first: Sequence[Sequence[Any]], own: dict[str, list[str]], values: Sequence[Any]) -> None:
            nonlocal begun
            if not begun:
                writer.writerow([*_FIRST, *own_columns(list(own), tasks), *tasks])
                begun = True
            cells = [[_text(value) for value in column] for column in values]
            writer.writerows(zip(*first, *own.values(), *cells, strict=True))

        yield write


@contextmanager
def _writing_parquet(place: Path, tasks: Sequence[str]) -> Iterator[Writer]:
    """Rows wait in separate files, which polars joins as a stream: it cannot append to a Parquet file."""
    polars = require("polars", extra="table")
    whole, number, text = polars.Int64, polars.Float64, polars.String
    with TemporaryDirectory(dir=place.parent, prefix=f"{place.name}-") as folder:
        waiting: list[Any] = []
        parts: list[Path] = []

        def keep() -> None:
            parts.append(Path(folder, f"{len(parts)}.arrow"))
            polars.concat(waiting).write_ipc(parts[-1], compression="lz4")
            waiting.clear()

        def write(first: Sequence[Sequence[Any]], own: dict[str, list[str]], values: Sequence[Any]) -> None:
            names = [*_FIRST, *own_columns(list(own), tasks), *tasks]
            kinds = [whole, whole, text, *[text] * len(own), *[number, number, whole] * (len(tasks) // 3)]
            cells = zip(names, [*first, *own.values(), *values], strict=True)
            waiting.append(polars.DataFrame(dict(cells), schema=dict(zip(names, kinds, strict=True))))
            if sum(map(len, waiting)) >= _TOGETHER:
                keep()

        yield write
        if waiting:
            keep()
        polars.scan_ipc(parts).sink_parquet(place)


def _text(value: Any) -> Any:
    return f"{value:.8g}" if isinstance(value, float) else "" if value is None else int(value)
