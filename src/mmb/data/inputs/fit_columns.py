"""Learning from the training rows how the columns of a table are encoded."""

import math
import re
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch
from torch import Tensor

from mmb._extras import require
from mmb._names import shown
from mmb._threads import one_thread
from mmb.data.errors import TableError
from mmb.data.files.table import Table, numbers
from mmb.data.inputs.column_kinds import Amount, Category, Date, Hashed, Number, WrittenNumber
from mmb.data.inputs.columns import ColumnEncoder
from mmb.data.inputs.quartiles import REACH, quartile_deviation

_FAR = 1e4  # times the width of the middle half: cells this far out would flatten all others
_CODES = 20  # with more different cells, most of them numbers, a column is not taken for codes
_DATES = 50  # with more different names, all of them dates, a column is taken for dates
_MOST_CATEGORIES = 1000  # one-hot; more are hashed to
_BUCKETS = 256
_LOOKED_AT = 1 << 20  # training rows
_MANY = 100_000  # rows, of which columns are fitted side by side
_THREADS = 2
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_MEASURED = re.compile(
    r"[<>~=]*\s*[$€£¥]?\s*[+-]?\d+([.,]\d+)?\s*([%$€£¥°‰]|[kMµmn]?[glLmsVAW]|mmol/[lL]|mg/d[lL])?"
)
_OTHER_DATE = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([ T].*)?|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4}.*")


class UselessColumn(TableError):
    """A column says nothing that can be learned.

    Args:
        table: The table.
        name: The column.
        reason: What its cells are.
        remedy: What to do, besides leaving it out.
    """

    def __init__(self, table: Table, name: str, reason: str, remedy: str = "") -> None:
        super().__init__(table.path, f"column {name!r} {reason}", f"{table.without(name)}{remedy}")
        self.reason = reason


def fit_columns(
    table: Table,
    names: Sequence[str],
    rows: Tensor,
    threads: int = _THREADS,
    leave_out: bool = False,
) -> ColumnEncoder:
    """Learn how to encode columns from the training rows alone.

    A column whose filled cells are all numbers is standardized with its mean and standard deviation (by its
    quartiles, and leveling off, where a cell is so far out that nothing would be left of the others), and
    its median fills gaps. So is a column of many dates, or of many numbers that all have the same sign or
    unit. Any other column is one-hot over the names it holds;
    very many names are hashed. A cell that could not be encoded is an error, and so is a column that says
    nothing: blank, or with another name in most rows. With `leave_out`, the encoder leaves such columns out.
    Of more than a million training rows, a million are looked at, evenly spaced. Threads fit columns of many
    rows side by side.
    """
    if len(rows) > _LOOKED_AT:
        table = table.take(rows[:: -(-len(rows) // _LOOKED_AT)])
        rows = torch.arange(len(table))

    def fit(name: str) -> Number | Category | Hashed | UselessColumn:
        try:
            return _fit(table, name, rows)
        except UselessColumn as error:
            if not leave_out:
                raise
            return error

    if threads == 1 or len(rows) <= _MANY:
        found = [fit(name) for name in names]
    else:
        with one_thread(), ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(fit, names))
    columns = tuple(column for column in found if not isinstance(column, UselessColumn))
    useless = [
        (n, column) for n, column in zip(names, found, strict=True) if isinstance(column, UselessColumn)
    ]
    if useless and not columns:
        raise TableError(
            table.path,
            "no column is left to learn from: "
            + "; ".join(f"{name!r} {error.reason}" for name, error in useless),
            "give columns of numbers or of names that repeat (for files of images, --data images)",
        )
    return ColumnEncoder(columns, {name: error.reason for name, error in useless})


def _fit(table: Table, name: str, rows: Tensor) -> Number | Category | Hashed:
    whole = table.numbers(name)
    values = whole[rows]
    there = ~values.isnan()
    if not bool(there.any()):
        raise UselessColumn(table, name, "is blank in every training row")
    if not bool(there.all()):
        values, rows = values[there], rows[there]
    if bool(values.isinf().any()):
        return _fit_names(table, name, rows)
    column = _fit_numbers(table, Number(name), values, rows)
    _refuse_unreadable(table, column, whole)
    return column


def _refuse_unreadable(table: Table, column: Number, values: Tensor) -> None:
    """Refuse cells that are not numbers, or too large to encode, whichever rows they are in."""
    filled = values.nan_to_num(nan=column.mean, posinf=torch.inf, neginf=-torch.inf)
    low, high = (float(end) for end in filled.aminmax())
    if max(high - column.mean, column.mean - low) / column.scale > torch.finfo(torch.float32).max:
        bad = ((values - column.mean) / column.scale).float().isinf()
        table.refuse_rows(bad, f"a cell that is not a number or too large, in column {column.name!r}")


def _fit_numbers(table: Table, kind: Number, values: Tensor, rows: Tensor) -> Number:
    """Standardize numbers, none of which is a gap."""
    name = kind.name
    # A scale of 1 keeps a constant column at zero.
    mean, spread = float(values.mean()), float(values.std(correction=0))
    if not math.isfinite(spread):
        raise TableError(
            table.path,
            f"column {name!r} has numbers as large as {float(values.abs().max()):g}",
            f"correct those cells, or {table.without(name)}",
        )
    n = len(values)
    low, middle, high = order_statistics(values, [n // 4, (n - 1) // 2, 3 * n // 4])
    if (
        max(float(end) - middle for end in (values.max(), 2 * middle - values.min()))
        > _FAR * (high - low)
        > 0
    ):
        furthest = int((values - middle).abs().argmax())
        path, row = table.locate(int(rows[furthest]))
        warnings.warn(
            f"{path}: column {name!r} has {float(values[furthest]):.12g} in data row {row}, where half "
            f"of its cells lie from {low:g} to {high:g}: cells that far out count as {REACH:g} deviations; "
            "blank them if they stand for a gap",
            stacklevel=2,
        )
        return replace(kind, fill=middle, mean=middle, scale=quartile_deviation(low, high), reach=REACH)
    return replace(kind, fill=middle, mean=mean, scale=spread or 1.0)


def order_statistics(values: Tensor, places: list[int]) -> list[float]:
    """What is at some places of sorted values `[n]`."""
    if len(values) > _MANY:
        found = require("numpy", extra="training").partition(values.numpy(), places)
        return [float(found[place]) for place in places]
    return [float(values.kthvalue(place + 1).values) for place in places]


def _has_comma(name: str) -> bool:
    return _DECIMAL_COMMA.fullmatch(name) is not None


def _fit_names(table: Table, name: str, rows: Tensor) -> Category | Hashed | Number:
    """Encode a column in which some training cells are not numbers; `rows` are those that are not blank."""
    cells = table.names(name)
    codes = cells.codes[rows]
    found = [cells.names[code] for code in torch.bincount(codes).nonzero().flatten().tolist()]
    kinds: list[WrittenNumber] = [Date(name)] if len(found) > _DATES else []
    if len(found) > _CODES and len(signs := {*map(Amount.signs, found)}) == 1 and (sign := signs.pop()):
        kinds.append(Amount(name, before=sign[0], after=sign[1]))
    for kind in kinds:
        if bool(kind.lookup(found)[:-1].isfinite().all()):
            values = kind.values(table)
            column = _fit_numbers(table, kind, values[rows], rows)
            _refuse_unreadable(table, column, values)
            return column
    as_number = numbers([*cells.names, ""], table.commas)[codes]
    finite = int(as_number.isfinite().sum())
    if len(found) > _CODES and 2 * finite > len(rows):
        row = int(rows[as_number.isinf().nonzero()[0]])
        path, place = table.locate(row)
        cell = shown(cells.names[int(cells.codes[row])])
        raise TableError(
            path,
            f"column {name!r} has numbers, but {cell} in data row {place}",
            f"correct such cells or blank them, or {table.without(name)}",
        )
    if len(found) > _CODES and 2 * sum(map(_has_comma, found)) > len(found):
        raise TableError(
            table.path,
            f"column {name!r} has numbers with commas, such as {shown(max(found, key=_has_comma))}",
            f"write them with points, or {table.without(name)}",
        )
    if len(found) > 50 and 2 * len(found) > len(rows):
        raise _too_many_names(table, name, found, len(rows))
    if len(found) > _DATES and (likely := _mostly_dates(found)):
        warnings.warn(
            f"{table.path}: column {name!r} has {len(found)} different names that may be dates, such as "
            f"{shown(likely[0])}, and each is taken for a name: write them like 2024-01-31 if they are dates",
            stacklevel=2,
        )
    if len(found) > _MOST_CATEGORIES:
        warnings.warn(
            f"{table.path}: column {name!r} has {len(found)} different names; they are hashed to {_BUCKETS} "
            "features, so that several share one",
            stacklevel=2,
        )
        return Hashed(name, _BUCKETS)
    return Category(name, tuple(sorted(found)))


def _mostly_dates(found: Sequence[str]) -> list[str]:
    """Those of the names that may be dates, if they are most of them."""
    dates = [cell for cell in found if _OTHER_DATE.fullmatch(cell)]
    return dates if 2 * len(dates) > len(found) else []


def _too_many_names(table: Table, name: str, found: Sequence[str], rows: int) -> TableError:
    """An error about a column with another name in most rows."""
    measured = [cell for cell in found if _MEASURED.fullmatch(cell)]
    if 2 * len(measured) > len(found):
        problem = f"column {name!r} has numbers with signs or units, such as {measured[0]!r}"
        return TableError(table.path, problem, f"write the numbers alone, or {table.without(name)}")
    what = "it looks like an identifier or free text"
    if _mostly_dates(found):
        what = "it may be dates, which are read if they are written like 2024-01-31"
    example = shown(min(found))
    reason = f"has {len(found)} different names in {rows} training rows (for example {example}), so {what}"
    return UselessColumn(table, name, reason, ", or correct the cells that should be numbers")
