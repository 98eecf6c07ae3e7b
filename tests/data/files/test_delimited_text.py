import pytest

from mmb.data import DamagedDataError
from mmb.data.files.delimited_text import is_blank, read_table, read_training_table


def test_rows_that_do_not_fit_are_blank_and_marked(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('\ufeffa , b\n1,"x,y"\n\n2\n3,z,4\n5,w\n', encoding="utf-8")
    table = read_table(path)
    assert table.columns == {"a": ["1", "", "", "5"], "b": ["x,y", "", "", "w"]}
    assert table.fits == [True, False, False, True]
    with pytest.raises(DamagedDataError, match=r"\[2, 3\]"):
        read_training_table(path)


def test_tabs_separate_the_cells_of_a_tsv_file(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("a\tb\n1,2\t3\n")
    assert read_table(path).columns == {"a": ["1,2"], "b": ["3"]}


def test_cells_that_mean_unknown():
    assert all(is_blank(cell) for cell in ("", " ", "NA", "n/a", "NaN", "null", "None", "?"))
    assert not any(is_blank(cell) for cell in ("0", "-", "no"))
