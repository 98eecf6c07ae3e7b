import json

import pytest
import torch

import mmb.data
from mmb.data import DamagedDataError, MissingDataError, encoder_from_json

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
        ("3,,rome,no", "3,,rome,-1", "'sick'.*'-1'.* 3"),
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
    with pytest.raises(DamagedDataError, match=message):
        mmb.data.load("csv", path=path, **OPTIONS)


def test_missing_file_empty_file_and_unknown_column(path, tmp_path):
    with pytest.raises(MissingDataError, match=r"none\.csv"):
        mmb.data.load("csv", path=tmp_path / "none.csv", labels="sick")
    with pytest.raises(DamagedDataError, match=r"'ill'.*\['id'"):
        mmb.data.load("csv", path=path, labels="ill")
    with pytest.raises(ValueError, match=r"features.*sick"):
        mmb.data.load("csv", path=path, labels="sick", features="sick,age")
    for names in ({"labels": "sick,sick"}, {"labels": "sick", "features": ["age", "age"]}):
        with pytest.raises(ValueError, match="twice"):
            mmb.data.load("csv", path=path, **names)
    path.write_text(TABLE.splitlines()[0] + "\n")
    with pytest.raises(DamagedDataError, match="no rows"):
        mmb.data.load("csv", path=path, labels="sick")
    path.write_text("")
    with pytest.raises(DamagedDataError, match="empty"):
        mmb.data.load("csv", path=path, labels="sick")
    path.write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(DamagedDataError, match="UTF-8"):
        mmb.data.load("csv", path=path, labels="b")


def test_what_stands_among_numbers_is_named_and_not_one_hot(tmp_path):
    path, rows = tmp_path / "typo.csv", [f"{r / 10},{r % 3},{r % 2}" for r in range(60)]
    rows[41] = '"4,1",3+,1'  # 3+ is one of a few codes: a category
    path.write_text("\n".join(["level,children,sick", *rows]) + "\n")
    split = {"fractions": [0.98, 0.01, 0.01]}
    with pytest.raises(DamagedDataError, match=r"'level'.*'4,1'.* 42"):
        mmb.data.load("csv", path=path, labels="sick", **split)
    names = mmb.data.load("csv", path=path, labels="sick", drop="level", **split).encoder.feature_names
    assert list(names) == [f"children={value}" for value in ("0", "1", "2", "3+")]


def test_identifiers_are_not_silently_one_hot(tmp_path):
    path = tmp_path / "ids.csv"
    path.write_text("name,sick\n" + "".join(f"p{r},{r % 2}\n" for r in range(100)))
    with pytest.raises(DamagedDataError, match="identifier"):
        mmb.data.load("csv", path=path, labels="sick")


def test_a_cell_far_out_leaves_the_others_apart(tmp_path):
    path = tmp_path / "table.csv"
    cells = [*(f"{k % 7}" for k in range(40)), "999999999"]
    path.write_text("x,y\n" + "\n".join(f"{cell},{k % 2}" for k, cell in enumerate(cells)) + "\n")
    with pytest.warns(UserWarning, match=r"'x'.*999999999.* 41.* 1 to 5"):
        data = mmb.data.load("csv", path=path, labels="y", fractions=(1, 0, 0))
    usual = data.inputs[:40, 0]
    assert float(usual.max() - usual.min()) > 1
    assert usual.max() < float(data.inputs[40, 0]) <= 4
    encoder = encoder_from_json(json.loads(json.dumps(data.encoder.to_json())))
    assert torch.equal(encoder.read(path)[0], data.inputs)


def test_codes_with_underscores_are_names(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("site,y\n1_20,1\n12_0,0\n1_20,0\n3_4,1\n")
    data = mmb.data.load("csv", path=path, labels="y", fractions=(1, 0, 0))
    assert data.encoder.feature_names == ("site=12_0", "site=1_20", "site=3_4")
