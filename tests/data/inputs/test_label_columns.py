from pathlib import Path

import pytest
import torch

from mmb.data import TableError
from mmb.data.files.table import TextTable
from mmb.data.inputs.label_columns import choose_columns, name_list, read_labels, read_split


@pytest.fixture(scope="module")
def table():
    columns = {"id": ["1", "2", "3"], "sick": ["yes", "0.0", " "], "part": ["train", "Test ", "valid"]}
    return TextTable(Path("t.csv"), columns, torch.ones(3, dtype=torch.bool))


def test_columns_are_chosen_by_name_or_are_all_the_others(table):
    assert name_list(" a, b ,") == name_list(["a", "b"]) == ["a", "b"]
    assert choose_columns(table, "labels", "sick,id") == ["sick", "id"]
    assert choose_columns(table, "labels", None, ["id"]) == ["sick", "part"]


@pytest.mark.parametrize(
    ("names", "reserved"), [([], []), ("id,id", []), ("id", ["id"]), (None, ["id", "sick", "part"])]
)
def test_a_choice_that_makes_no_sense_is_refused(table, names, reserved):
    with pytest.raises(ValueError, match="labels"):
        choose_columns(table, "labels", names, reserved)


def test_labels_and_split_are_read(table):
    assert read_labels(table, ["sick"]).tolist() == [[1], [0], [-1]]
    split = read_split(table, "part", (1, 0, 0), 0)
    assert {part: rows.tolist() for part, rows in split.items()} == {"train": [0], "valid": [2], "test": [1]}
    assert len(read_split(table, None, (1, 0, 0), 0)["train"]) == 3


def test_what_is_not_a_label_or_a_part_is_named(table):
    with pytest.raises(TableError, match=r"'id'.*'2'.*2"):
        read_labels(table, ["id"])
    with pytest.raises(TableError, match="'sick'"):
        read_split(table, "sick", (1, 0, 0), 0)
