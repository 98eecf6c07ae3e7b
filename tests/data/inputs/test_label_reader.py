from pathlib import Path

import pytest
import torch

from mmb.data import TableError
from mmb.data.files.table import TextTable
from mmb.data.inputs.label_reader import read_labels


def test_labels_are_read():
    table = TextTable(Path("t.csv"), {"sick": ["yes", "0.0", " "]}, torch.ones(3, dtype=torch.bool))
    assert read_labels(table, ["sick"]).tolist() == [[1], [0], [-1]]


def test_what_is_not_a_label_is_named():
    table = TextTable(Path("t.csv"), {"id": ["1", "2", "3"]}, torch.ones(3, dtype=torch.bool))
    with pytest.raises(TableError, match=r"'id'.*'2'.*2"):
        read_labels(table, ["id"])


def test_words_in_any_case_are_labels():
    cells = ["T", "f", "Y", "n", "Positive", "NEG", "active", "Inactive", "?"]
    words = TextTable(Path("t.csv"), {"y": cells}, torch.ones(9, dtype=torch.bool))
    assert read_labels(words, ["y"]).flatten().tolist() == [1, 0, 1, 0, 1, 0, 1, 0, -1]


def test_minus_one_is_negative_if_one_is_said_to_be_positive():
    signs = TextTable(Path("t.csv"), {"y": ["1", "-1", "", "1.0"]}, torch.ones(4, dtype=torch.bool))
    with pytest.raises(TableError, match=r"-1.*(.|\n)*data\.positive=1"):
        read_labels(signs, ["y"])
    assert read_labels(signs, ["y"], "1").flatten().tolist() == [1, 0, -1, 1]


@pytest.mark.parametrize(("cells", "positive"), [(["1", "2", "1"], "2"), (["0", "300", "300"], "300")])
def test_two_numbers_may_be_said_to_be_positive_and_negative(cells, positive):
    codes = TextTable(Path("t.csv"), {"y": cells}, torch.ones(3, dtype=torch.bool))
    with pytest.raises(TableError, match=rf"data\.positive={positive}\)"):
        read_labels(codes, ["y"])
    assert read_labels(codes, ["y"], positive).flatten().tolist() == [int(c == positive) for c in cells]


def test_of_a_long_cell_the_start_is_shown():
    words = TextTable(Path("t.csv"), {"y": ["0", "z" * 10_000]}, torch.ones(2, dtype=torch.bool))
    with pytest.raises(TableError, match=r"'zzz.*10,000 characters") as error:
        read_labels(words, ["y"])
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("stray", ["2", "0.5", "x"])
def test_a_stray_cell_among_zeros_and_ones_does_not_say_what_is_positive(stray):
    cells = ["0", "1", "1", stray, "0"]
    table = TextTable(Path("t.csv"), {"y": cells}, torch.ones(5, dtype=torch.bool))
    with pytest.raises(TableError, match=f"'{stray}' in data row 4") as error:
        read_labels(table, ["y"])
    assert "positive" not in str(error.value)
    words = TextTable(Path("t.csv"), {"y": ["a", "b", "b"]}, torch.ones(3, dtype=torch.bool))
    with pytest.raises(TableError, match=r"data\.positive=a"):
        read_labels(words, ["y"])


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        (["negative", "positive", "negative", "invalid"], r"data\.positive=positive"),  # not the rarest
        (["storm", "low", "low", "low", "wave", "wave"], r"'storm', 'low', 'wave'.*(.|\n)*task for each"),
    ],
)
def test_more_than_two_kinds_of_cells(cells, told):
    table = TextTable(Path("t.csv"), {"y": cells}, torch.ones(len(cells), dtype=torch.bool))
    with pytest.raises(TableError, match=told):
        read_labels(table, ["y"])
