import json

import pytest
import torch

import mmb.data
from mmb.data import MissingDataError, TableError, encoder_from_json

TABLE = """id,age,city,sick,rich,part
1,10,rome,1,0,train
2,20,oslo,0,,train
3,,rome,no,1,train
4,60,,yes,0,train
5,40,paris,1,1,valid
6,NA,oslo,0,0,test
"""
OPTIONS = {"labels": ["sick", "rich"], "drop": "id", "split_column": "part"}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return path


def test_numbers_categories_gaps_and_split(path):
    data = mmb.data.load("csv", path=path, **OPTIONS)
    assert data.encoder.feature_names == ("age", "city=oslo", "city=rome")
    age = torch.tensor([10.0, 20.0, 60.0], dtype=torch.float64)  # the training rows that have one
    scaled = (torch.tensor([10.0, 20, 20, 60, 40, 20]) - age.mean()) / age.std(correction=0)
    assert torch.allclose(data.inputs[:, 0], scaled.float(), rtol=1e-6)
    # a blank city, and one never seen in training, are neither oslo nor rome
    assert data.inputs[:, 1:].tolist() == [[0, 1], [1, 0], [0, 1], [0, 0], [0, 0], [1, 0]]
    assert data.labels.tolist() == [[1, 0], [0, -1], [0, 1], [1, 0], [1, 1], [0, 0]]
    assert {part: rows.tolist() for part, rows in data.split.items()} == {
        "train": [0, 1, 2, 3],
        "valid": [4],
        "test": [5],
    }


def test_a_new_file_is_encoded_identically_and_bad_rows_are_kept(path, tmp_path):
    data = mmb.data.load("csv", path=path, **OPTIONS)
    new = tmp_path / "new.tsv"
    new.write_text("city\tage\textra\nrome\t10\tx\noslo\told\ty\nrome\n\t\t\nrome\tinf\tz\noslo\t20\t\n")
    encoder = encoder_from_json(json.loads(json.dumps(data.encoder.to_json())))
    inputs, usable = encoder.read(new)
    assert usable.tolist() == [True, False, False, True, False, True]
    assert torch.equal(inputs[[0, 5]], data.inputs[:2])
    assert inputs[3].tolist() == [data.inputs[2, 0].item(), 0.0, 0.0]
    assert inputs.isfinite().all()


def test_all_other_columns_are_features_by_default(path):
    data = mmb.data.load("csv", path=path, labels="sick", drop="id,part", fractions=(1, 0, 0))
    assert "rich" in data.encoder.feature_names
    assert len(data.split["train"]) == 6


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("3,,rome,no", "3,,rome,-2", "'sick'.*'-2'.* 3"),
        ("5,40", "5,forty", r"'age'.*\[5\]"),
        ("6,NA,oslo,0,0,test", "6,NA,oslo,0,0", r"cells.*\[6\]"),
        (",valid", ",dev", r"'part'.*\[5\]"),
        ("id,age", "age,age", r"\['age'\]"),
        ("4,", '4,"', "data row 4"),
        ("5,40", "5,1e300", r"too large.*\[5\]"),
        ("1,10", "1,1e308", r"'age'.*1e\+308"),
        ("id,age", "id,years", None),
    ],
)
def test_damaged_tables_say_where(path, old, new, message):
    path.write_text(TABLE.replace(old, new))
    if message is None:  # not damage: another column name is simply another feature
        assert "years" in mmb.data.load("csv", path=path, **OPTIONS).encoder.feature_names
        return
    with pytest.raises(TableError, match=message):
        mmb.data.load("csv", path=path, **OPTIONS)


def test_missing_file_empty_file_and_unknown_column(path, tmp_path):
    with pytest.raises(MissingDataError, match=r"none\.csv"):
        mmb.data.load("csv", path=tmp_path / "none.csv", labels="sick")
    with pytest.raises(TableError, match=r"'ill'.*\['id'"):
        mmb.data.load("csv", path=path, labels="ill")
    with pytest.raises(ValueError, match=r"features.*sick"):
        mmb.data.load("csv", path=path, labels="sick", features="sick,age")
    for names in ({"labels": "sick,sick"}, {"labels": "sick", "features": ["age", "age"]}):
        with pytest.raises(ValueError, match="twice"):
            mmb.data.load("csv", path=path, **names)
    path.write_text(TABLE.splitlines()[0] + "\n")
    with pytest.raises(TableError, match="no rows"):
        mmb.data.load("csv", path=path, labels="sick")
    path.write_text("")
    with pytest.raises(TableError, match="empty"):
        mmb.data.load("csv", path=path, labels="sick")
    path.write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(TableError, match="UTF-8"):
        mmb.data.load("csv", path=path, labels="b")
