from pathlib import Path

import pytest
import torch

from mmb._names import name_list
from mmb.data import TableError
from mmb.data.files.table import TextTable
from mmb.data.inputs.column_roles import choose_columns, choose_labels


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


def test_by_default_labels_are_the_columns_that_mostly_hold_labels():
    columns = {
        "id": ["a", "b", "c", "d"],
        "dose": ["0.5", "1", "2", ""],
        "sick": ["1", "0", "", "yes"],
        "typo": ["1", "0", "1", "x"],
        "blank": ["", "", "", ""],
    }
    table = TextTable(Path("t.csv"), columns, torch.ones(4, dtype=torch.bool))
    tasks, left_out = choose_labels(table, None, [])
    assert tasks == ["sick", "typo", "blank"]
    assert list(left_out) == ["id", "dose"]
    assert "'a'" in left_out["id"]
    assert choose_labels(table, "id", []) == (["id"], {})
    assert choose_labels(table, None, ["sick", "typo", "blank"])[0] == ["id", "dose"]  # an error names them


def test_a_name_with_a_comma_is_one_column_if_there_is_such_a_column():
    table = TextTable(Path("t.csv"), {"pain, chronic": ["1"], "a": ["0"]}, torch.ones(1, dtype=torch.bool))
    assert choose_columns(table, "labels", "pain, chronic") == ["pain, chronic"]
    assert choose_columns(table, "labels", "p*,a") == ["pain, chronic", "a"]


def test_a_choice_that_makes_no_sense_names_the_key_and_the_column(table):
    for names, reserved, told in (
        ("id,id", [], "twice"),
        ("id", ["id"], "another use"),
        ([], [], "no column"),
    ):
        with pytest.raises(TableError, match=rf"data\.features names .*{told}"):
            choose_columns(table, "features", names, reserved)


def test_a_column_that_cannot_name_a_task_is_refused_with_its_file():
    odd = TextTable(Path("t.csv"), {"x\x07": ["1", "0"]}, torch.ones(2, dtype=torch.bool))
    with pytest.raises(TableError, match=r"(?s)t\.csv.*x07.*control.*data\.labels"):
        choose_columns(odd, "labels", None)
    assert choose_columns(odd, "features", None) == ["x\x07"]
