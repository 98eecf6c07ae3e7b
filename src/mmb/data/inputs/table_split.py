"""How the rows of a table are divided into train, valid and test, as the options of a data set say."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmb.data.dataset import SPLITS
from mmb.data.errors import TableError
from mmb.data.files.table import GAP, Table
from mmb.data.inputs.column_kinds import Date
from mmb.data.splits import check_fractions, grouped_split, split_rows, united


@dataclass(frozen=True)
class TableSplit:
    """A way to divide the rows of a table.

    Attributes:
        fractions: Of train, valid and test, as in `split_rows`.
        seed: Of all that is random.
        split: `"random"`, `"stratified"` or, with scaffolds, `"scaffold"`, whose place groups and time take.
        split_column: Column that says the part of each row.
        group: Column that says which rows belong together.
        time: Column of numbers or dates, by which rows are ordered.
        folds: As in `split_rows`.
        fold: As in `split_rows`.
        own: Parts to which the second file and those after it belong. Only the rows of the first are split.
    """

    fractions: Sequence[float] = (0.8, 0.1, 0.1)
    seed: int = 0
    split: str = "random"
    split_column: str | None = None
    group: str | None = None
    time: str | None = None
    folds: int = 0
    fold: int = 0
    own: Sequence[str] = ()

    @property
    def columns(self) -> dict[str, str]:
        """Columns that say how rows are divided, by the options that name them."""
        given = {"split_column": self.split_column, "group": self.group, "time": self.time}
        return {option: name for option, name in given.items() if name is not None}

    def facts(self, table: Table) -> dict[str, Any]:
        """What the details of a data set say of it: how rows are divided, and the files they are from."""
        kind = "random" if self.split == "scaffold" and self.group else self.split
        facts: dict[str, Any] = {"split": "given" if self.split_column else "time" if self.time else kind}
        if self.own:
            facts["own_files"] = [*self.own]
        if len(table.files) > 1:
            facts["files"] = [[str(path), rows] for path, rows in table.files]
        return facts

    def divide(
        self,
        table: Table,
        labels: Tensor,
        sizes: Sequence[int] | None = None,
        together: Tensor | None = None,
        scaffolds: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Rows of train, valid and test.

        Args:
            table: The table.
            labels: Of its rows, `int8 [n, m]`.
            sizes: Rows of each file, if there are several.
            together: Codes `[n]` of rows that are never divided within a file, such as copies.
            scaffolds: Codes `[n]` of the scaffolds of molecules.
        """
        self._check(scaffolds is not None)
        if self.split_column is not None:
            return _given_parts(table, self.split_column)
        groups = None if self.group is None else _groups(table, self.group)
        times = None if self.time is None else _times(table, self.time)
        by_scaffold = self.split == "scaffold" and self.group is None and self.time is None
        units = scaffolds if by_scaffold else united(groups, together)
        sizes = [len(table)] if sizes is None else sizes
        rows, shares = sizes[0], check_fractions(self.fractions)
        if self.own:
            left = [0.0 if part in self.own else share for part, share in zip(SPLITS, shares, strict=True)]
            shares = check_fractions([share / sum(left) for share in left])
        if self.group is not None and units is not None:
            parts_wanted = self.folds or sum(share > 0 for share in shares)
            _refuse_too_few(table, self.group, units[:rows], parts_wanted, together is not None)
        if by_scaffold and units is not None and not self.folds:
            parts = grouped_split(units[:rows], shares)
        else:
            parts = split_rows(
                rows,
                shares,
                self.seed,
                labels=labels[:rows] if self.split == "stratified" else None,
                groups=None if units is None else units[:rows],
                times=None if times is None else times[:rows],
                folds=self.folds,
                fold=self.fold,
            )
        for part, start, size in zip(self.own, accumulate(sizes), sizes[1:], strict=False):
            parts[part] = torch.arange(start, start + size)
        if self.group is not None and groups is not None:
            _refuse_divided(table, self.group, groups, sizes)
        if self.time is not None and times is not None:
            _refuse_disorder(table, self.time, times, parts, self.own)
        return parts

    def _check(self, scaffolds: bool) -> None:
        """Refuse options that do not go together."""
        kinds = ("scaffold", "random", "stratified")[not scaffolds :]
        if self.split not in kinds:
            raise ValueError(f"split must be {' or '.join(map(repr, kinds))}, got {self.split!r}")
        if self.own and (self.split_column or self.folds):
            raise ValueError(
                "valid_path, test_path: files for parts go together with neither split_column nor folds"
            )
        if self.fold and not self.folds:
            raise ValueError(f"fold: got {self.fold} without folds; say how many there are, such as folds=5")
        others = self.group or self.time or self.folds or self.split != kinds[0]
        if self.split_column is not None and others:
            raise ValueError("split_column says all there is to say: leave out split, group, time and folds")


def own_parts(valid_path: str | Path | None, test_path: str | Path | None) -> list[str]:
    """Parts that have a file of their own."""
    return [part for part, path in zip(SPLITS[1:], (valid_path, test_path), strict=True) if path is not None]


def _given_parts(table: Table, column: str) -> dict[str, Tensor]:
    """Rows of train, valid and test by a column that says so."""
    codes, names = table.names(column)
    parts = torch.tensor([*(SPLITS.index(n.lower()) if n.lower() in SPLITS else GAP for n in names), GAP])
    part = parts[codes]
    table.refuse_rows(part == GAP, f"none of {', '.join(SPLITS)} in column {column!r}", "split_column")
    return {name: (part == index).nonzero().flatten() for index, name in enumerate(SPLITS)}


def _groups(table: Table, name: str) -> Tensor:
    """Codes `[n]` of a column that says which rows belong together."""
    codes, names = table.names(name)
    table.refuse_rows(codes == GAP, f"a blank cell in column {name!r}, which says their group", "group")
    if len(table.files) < 2:
        return codes
    places: dict[str, int] = {}  # one file may have 7, and another 7.0
    return torch.tensor([places.setdefault(n.removesuffix(".0"), len(places)) for n in names])[codes]


def _times(table: Table, name: str) -> Tensor:
    """A column of numbers or dates, float64 `[n]`."""
    values = table.numbers(name)
    if bool(values.isinf().any()):
        values = Date(name).values(table)
    table.refuse_rows(
        ~values.isfinite(), f"neither a number nor a date such as 2024-01-31 in column {name!r}", "time"
    )
    return values


def _refuse_too_few(table: Table, name: str, units: Tensor, parts: int, molecules: bool) -> None:
    """Refuse rows of which fewer groups than parts are left, also since copies put groups together."""
    count = len(torch.unique(units))
    if count < parts:
        why = " (rows of the same molecule put their groups together)" if molecules else ""
        raise TableError(
            table.path,
            f"its rows form {count} groups by {name!r}, too few for {parts} parts{why}",
            f"leave out data.group={name}, or name another column (data.group=NAME)",
        )


def _refuse_divided(table: Table, name: str, groups: Tensor, sizes: Sequence[int]) -> None:
    """Refuse files for parts that share a group."""
    for start, size in zip(accumulate(sizes), sizes[1:], strict=False):
        shared = torch.isin(groups[start : start + size], groups[:start]).nonzero().flatten()
        if len(shared):
            row = start + int(shared[0])
            path, place = table.locate(row)
            other, first = table.locate(int((groups[:start] == groups[row]).nonzero()[0]))
            many = "1 row is" if len(shared) == 1 else f"{len(shared)} rows are"
            raise TableError(
                path,
                f"{many} of groups that another file has: {name!r} is {_cell(table, name, row)!r} in data "
                f"row {place}, and in data row {first} of {other}",
                f"keep each group in one file, or leave out data.group={name} if groups may be divided",
            )


def _refuse_disorder(
    table: Table, name: str, times: Tensor, parts: dict[str, Tensor], own: Sequence[str]
) -> None:
    """Refuse files for parts that are not in order of time: first train, then valid, then test."""
    for before, after in pairwise(part for part in SPLITS if len(parts[part])):
        last = int(parts[before][times[parts[before]].argmax()])
        first = int(parts[after][times[parts[after]].argmin()])
        if {before, after} & {*own} and times[last] >= times[first]:
            (path, row), (other, other_row) = table.locate(first), table.locate(last)
            raise TableError(
                path,
                f"{name!r} is {_cell(table, name, first)!r} in data row {row}, which is for {after}, but "
                f"{_cell(table, name, last)!r} in data row {other_row} of {other}, which is for {before}",
                "give files of which those for valid are later than those for train, and those for test the "
                "latest; take no other part from the first file (data.fractions=[1,0,0]); or leave out "
                f"data.time={name}",
            )


def _cell(table: Table, name: str, row: int) -> str:
    return table.take(torch.tensor([row])).cells(name)[0]
