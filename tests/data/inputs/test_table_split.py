from itertools import pairwise
from pathlib import Path

import pytest
import torch

from mmb.data import TableError
from mmb.data.files.table import TextTable, joined
from mmb.data.inputs.table_split import TableSplit


def _columns(path, **columns):
    cells = {name: [str(value) for value in values.tolist()] for name, values in columns.items()}
    return TextTable(Path(path), cells, torch.ones(len(next(iter(cells.values()))), dtype=torch.bool))


@pytest.mark.parametrize("case", range(120))
def test_no_split_into_files_leaks(case):
    """Files for parts are refused if, and only if, a group is in two of them or time goes back."""
    draw = torch.Generator().manual_seed(case)
    own = [["valid"], ["test"], ["valid", "test"]][case % 3]
    grouped, timed, apart, sorted_ = ((case >> bit) & 1 for bit in range(4))
    sizes = torch.randint(2, 30, (1 + len(own),), generator=draw).tolist()
    tables = []
    for number, size in enumerate(sizes):
        groups = torch.randint(0, 20, (size,), generator=draw) + 20 * number * apart
        times = torch.randint(0, 5, (size,), generator=draw) + (5 * number if sorted_ else 0)
        tables.append(_columns(f"{number}.csv", group=groups, time=times))
    table = joined(tables, ["group", "time"])
    options = {"group": "group" if grouped else None, "time": "time" if timed else None}
    fractions = (0.7, 0.3, 0) if own == ["test"] else (1, 0, 0)
    how = TableSplit(fractions, case, **options, own=own)
    labels = torch.zeros(len(table), 1, dtype=torch.int8)
    groups, times = table.numbers("group"), table.numbers("time")
    starts = torch.tensor([0, *sizes]).cumsum(0)
    files = [torch.arange(start, stop) for start, stop in pairwise(starts)]
    shared = len(groups.unique()) < sum(len(groups[rows].unique()) for rows in files)
    back = any(times[a].max() >= times[b].min() for a, b in pairwise(files))
    if (grouped and shared) or (timed and back):
        with pytest.raises(TableError, match=r"(?s)\.csv.*row \d+.*\d\.csv.*data\.(group|time)="):
            how.divide(table, labels, sizes)
        return
    split = how.divide(table, labels, sizes)
    assert torch.equal(torch.cat(list(split.values())).sort().values, torch.arange(len(table)))
    assert all(torch.equal(split[part], rows) for part, rows in zip(own, files[1:], strict=True))
    parts = [rows for rows in split.values() if len(rows)]
    if grouped:
        assert len(groups.unique()) == sum(len(groups[rows].unique()) for rows in parts)
    if timed and not grouped:
        assert all(times[a].max() < times[b].min() for a, b in pairwise(parts))


def test_a_group_is_the_same_in_two_files_however_its_number_is_written():
    tables = [_columns("a.csv", site=torch.tensor([7, 8])), _columns("b.csv", site=torch.tensor([9.0, 7.0]))]
    table, labels = joined(tables, ["site"]), torch.zeros(4, 1, dtype=torch.int8)
    with pytest.raises(TableError, match=r"b\.csv: 1 row is.*'site' is '7\.0' in data row 2.* 1 of a\.csv"):
        TableSplit((1, 0, 0), group="site", own=["valid"]).divide(table, labels, [2, 2])


def test_a_fold_without_folds_is_refused():
    table = _columns("a.csv", x=torch.arange(9))
    with pytest.raises(ValueError, match=r"fold: got 3 without folds"):
        TableSplit(fold=3).divide(table, torch.zeros(9, 1, dtype=torch.int8))


def test_a_column_says_the_part_of_each_row():
    columns = {"sick": ["yes", "0.0", " "], "part": ["train", "Test ", "valid"]}
    table = TextTable(Path("t.csv"), columns, torch.ones(3, dtype=torch.bool))
    labels = torch.zeros(3, 1, dtype=torch.int8)
    split = TableSplit(split_column="part").divide(table, labels)
    assert {part: rows.tolist() for part, rows in split.items()} == {"train": [0], "valid": [2], "test": [1]}
    with pytest.raises(TableError, match="'sick'"):
        TableSplit(split_column="sick").divide(table, labels)
