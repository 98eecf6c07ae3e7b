"""A table of one's own: a CSV file with feature columns and label columns, gaps allowed in both.

Features: numbers are standardised and gaps filled with the median; other columns are one-hot; both learned
from the training rows and remembered in the encoder, so that new files are encoded identically. Labels: 1 / 0
(also true / false, yes / no), blank where not known. Split by a column of the file that says train, valid or
test, or at random by the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from mmb.data.dataset import SPLITS, Dataset
from mmb.data.errors import DamagedDataError
from mmb.data.files.delimited_text import TextTable, is_blank, read_table
from mmb.data.inputs.columns import fit_columns
from mmb.data.splits import random_split
from mmb.label_values import MISSING

_LABELS = {"1": 1, "1.0": 1, "true": 1, "yes": 1, "0": 0, "0.0": 0, "false": 0, "no": 0}


def load(
    root: Path | None = None,
    *,
    path: str | Path,
    labels: str | Sequence[str],
    features: str | Sequence[str] | None = None,
    drop: str | Sequence[str] = (),
    split_column: str | None = None,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
) -> Dataset:
    """Load a table.

    Args:
        root: Not used: the file is read where it is.
        path: The file: CSV with a header line, UTF-8 (tab-separated if its name ends in `.tsv`).
        labels: Names of the label columns, one task each; a list, or one string with commas.
        features: Names of the feature columns; all other columns by default.
        drop: Columns to leave out, such as identifiers.
        split_column: Column that says `train`, `valid` or `test` for each row.
        fractions: Of train, valid and test, where there is no `split_column`.
        seed: Seed of the random split.

    Returns:
        The data set.

    Raises:
        MissingDataError: If the file does not exist.
        DamagedDataError: If a column is missing or a cell cannot be read; the message names row and column.
        ValueError: If no label or no feature column is left, or one is named twice.
    """
    table = read_rows(Path(path))
    tasks, dropped = name_list(labels), {*name_list(drop)}
    for name in dropped:
        table.column(name)
    taken = {*tasks, *dropped, *([split_column] if split_column else [])}
    columns = [n for n in table.columns if n not in taken] if features is None else name_list(features)
    if not tasks or not columns or taken & {*columns} or repeats(tasks) or repeats(columns):
        raise ValueError(
            f"need at least one label and one feature column, none twice and none that is both: got labels "
            f"{tasks}, features {columns}, drop {sorted(dropped)}, split_column {split_column!r}"
        )
    label_matrix = read_labels(table, tasks)
    split = read_split(table, split_column, fractions, seed)
    encoder = fit_columns(table, columns, split["train"])
    inputs, usable = encoder.encode(table)
    if not bool(usable.all()):
        first = int((~usable).nonzero()[0])
        cells = {column.name: column.encode([table.column(column.name)[first]]) for column in encoder.columns}
        name = next(name for name, (_, good) in cells.items() if not bool(good.all()))
        problem = f"a cell that is not a number or too large, in a column of numbers (the first: {name!r})"
        refuse_rows(table, (~usable).tolist(), problem)
    return Dataset(
        name="csv",
        inputs=inputs,
        labels=label_matrix,
        split=split,
        task_names=tuple(tasks),
        encoder=encoder,
        details={"path": str(path), "seed": seed, "features": list(encoder.feature_names)},
    )


def name_list(names: str | Sequence[str]) -> list[str]:
    """Column names from a list, or from one string with commas."""
    return [name.strip() for name in names.split(",") if name.strip()] if isinstance(names, str) else [*names]


def repeats(names: Sequence[str]) -> bool:
    """Whether a name is there twice."""
    return len({*names}) < len(names)


def read_rows(path: Path) -> TextTable:
    """Read a table to train on.

    Raises:
        MissingDataError: If the file does not exist.
        DamagedDataError: If it has no rows, or one with too few or too many cells.
    """
    table = read_table(path)
    if not table.fits:
        raise DamagedDataError(path, "it has a header and no rows", "give it rows to train on")
    refuse_rows(table, [not fits for fits in table.fits], "a different number of cells than the header")
    return table


def refuse_rows(table: TextTable, bad: Sequence[bool], problem: str) -> None:
    """Raise, naming the first bad rows, unless there are none."""
    rows = [row + 1 for row, is_bad in enumerate(bad) if is_bad]
    if rows:
        raise DamagedDataError(
            table.path,
            f"{len(rows)} rows have {problem} (data rows {rows[:5]}, counted from 1 after the header)",
            "correct or remove those rows",
        )


def read_labels(table: TextTable, tasks: Sequence[str]) -> Tensor:
    """Label columns as `int8 [n, m]` with 1, 0 and -1 for a blank.

    Raises:
        DamagedDataError: If a cell is none of these; -1 is refused because it means "missing" to some and
            "negative" to others.
    """
    columns = []
    for name in tasks:
        cells = table.column(name)
        # A column has few distinct cells: each is understood once.
        meaning = {
            cell: MISSING if is_blank(cell) else _LABELS.get(cell.strip().lower()) for cell in {*cells}
        }
        wrong = {cell for cell, value in meaning.items() if value is None}
        if wrong:
            row = next(row for row, cell in enumerate(cells) if cell in wrong)
            raise DamagedDataError(
                table.path,
                f"label column {name!r} has {cells[row]!r} in data row {row + 1}",
                "write labels as 1 and 0, and leave a label that is not known blank",
            )
        columns.append(torch.tensor([meaning[cell] for cell in cells], dtype=torch.int8))
    return torch.stack(columns, 1)


def read_split(
    table: TextTable, column: str | None, fractions: Sequence[float], seed: int
) -> dict[str, Tensor]:
    """Rows of train, valid and test by a column of the table, or at random where there is none."""
    if column is None:
        return random_split(len(table.fits), fractions, torch.Generator().manual_seed(seed))
    parts = [cell.strip().lower() for cell in table.column(column)]
    refuse_rows(table, [part not in SPLITS for part in parts], f"no {SPLITS} in column {column!r}")
    return {
        name: torch.tensor([row for row, part in enumerate(parts) if part == name], dtype=torch.int64)
        for name in SPLITS
    }
