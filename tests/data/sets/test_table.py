import json
import random
import statistics
import warnings
from datetime import date, timedelta

import pytest
import torch

import mmb.data
from mmb.data import MissingDataError, TableError, encoder_from_json
from new_files import read_new

TABLE = """id,age,city,sick,rich,part
1,10,rome,1,0,train
2,20,oslo,0,,train
3,,rome,no,1,train
4,60,,yes,0,train
5,40,paris,1,1,valid
6,NA,oslo,0,0,test
"""
OPTIONS = {"labels": ["sick", "rich"], "drop": "id", "split_column": "part"}


@pytest.fixture(autouse=True, params=["in memory", "prepared"])
def way(request, tmp_path, monkeypatch):
    """Small tables are read as they are, others by way of columns on disk: both give the same."""
    monkeypatch.setenv("MMB_DATA", str(tmp_path / "root"))
    if request.param == "prepared":
        pytest.importorskip("polars")
        monkeypatch.setattr("mmb.data.sets.table._SMALL", -1)
    return request.param


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return path


def test_numbers_categories_gaps_and_split(path):
    data = mmb.data.load("csv", path=path, **OPTIONS)  # the name it had before
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
    data = mmb.data.load("table", path=path, **OPTIONS)
    new = tmp_path / "new.tsv"
    new.write_text("city\tage\textra\nrome\t10\tx\noslo\told\ty\nrome\n\t\t\nrome\tinf\tz\noslo\t20\t\n")
    encoder = encoder_from_json(json.loads(json.dumps(data.encoder.to_json())))
    inputs, usable = read_new(encoder, new)
    assert usable.tolist() == [True, False, False, True, False, True]
    assert torch.equal(inputs[[0, 5]], data.inputs[:2])
    assert inputs[3].tolist() == [data.inputs[2, 0].item(), 0.0, 0.0]
    assert inputs.isfinite().all()


def test_all_other_columns_are_features_by_default(path):
    data = mmb.data.load("table", path=path, labels="sick", drop="id,part", fractions=(1, 0, 0))
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
        assert "years" in mmb.data.load("table", path=path, **OPTIONS).encoder.feature_names
        return
    with pytest.raises(TableError, match=message):
        mmb.data.load("table", path=path, **OPTIONS)


def test_missing_file_empty_file_and_unknown_column(path, tmp_path):
    with pytest.raises(MissingDataError, match=r"none\.csv"):
        mmb.data.load("table", path=tmp_path / "none.csv", labels="sick")
    with pytest.raises(TableError, match=r"'ill'.* 'id'"):
        mmb.data.load("table", path=path, labels="ill")
    with pytest.raises(ValueError, match=r"features.*sick"):
        mmb.data.load("table", path=path, labels="sick", features="sick,age")
    for names in ({"labels": "sick,sick"}, {"labels": "sick", "features": ["age", "age"]}):
        with pytest.raises(ValueError, match="twice"):
            mmb.data.load("table", path=path, **names)
    path.write_text(TABLE.splitlines()[0] + "\n")
    with pytest.raises(TableError, match="no rows"):
        mmb.data.load("table", path=path, labels="sick")
    path.write_text("")
    with pytest.raises(TableError, match="empty"):
        mmb.data.load("table", path=path, labels="sick")
    path.write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(TableError, match="UTF-8"):
        mmb.data.load("table", path=path, labels="b")


def _random_table(rows=300):
    draw = random.Random(1)
    lines = ["day,x,z,kind,many,who,y0,y1"]
    for row in range(rows):
        day = date(2020, 1, 1) + timedelta(days=draw.randrange(400))
        x = draw.choice(["", f"{draw.gauss(0, 1):.6g}", "NA" if row > 5 else "1"])
        many = f"n{draw.randrange(120)}"
        labels = draw.choice(["0,1", "1,0", "0,", "-1,0", "0,0"])
        lines.append(f"{day},{x},{draw.gauss(5, 2)},{draw.choice('abc')},{many},p{row // 4},{labels}")
    return "\n".join(lines) + "\n"


def test_rows_on_disk_are_those_in_memory(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text(_random_table())
    options = {"path": path, "labels": "y0,y1", "group": "who", "split": "stratified"}
    monkeypatch.setattr("mmb.data.inputs.fit_columns._MOST_CATEGORIES", 50)
    with pytest.warns(UserWarning, match="'many'.*hashed"):
        whole = mmb.data.load("table", **options)
    monkeypatch.setattr("mmb.data.sets.table._SMALL", -1)
    monkeypatch.setattr("mmb.data.inputs.table_cache._IN_MEMORY", 0)
    with warnings.catch_warnings():  # said once, by the first load
        warnings.simplefilter("ignore")
        drawn = mmb.data.load("table", **options)
    assert drawn.encoder == whole.encoder
    assert torch.equal(drawn.labels, whole.labels)
    assert all(torch.equal(drawn.split[part], whole.split[part]) for part in whole.split)
    assert [type(column).__name__ for column in whole.encoder.columns] == [
        *("Date", "Number", "Number", "Category", "Hashed")
    ]
    rows = torch.randint(0, len(whole), (64,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(drawn.batch(rows), whole.batch(rows))
    assert not isinstance(drawn.inputs, torch.Tensor)
    inputs, usable = read_new(drawn.encoder, path)
    assert torch.equal(inputs, whole.inputs)
    assert usable.all()


def test_of_many_training_rows_some_are_looked_at(path, tmp_path, monkeypatch, way):
    """Evenly; a cell far out is found where it is in the file."""
    lines = [f"{row % 7},{row % 2}" for row in range(60)]
    lines[48] = "1e9,0"
    path.write_text("x,y\n" + "\n".join(lines) + "\n")
    monkeypatch.setattr("mmb.data.inputs.fit_columns._LOOKED_AT", 30)
    with pytest.warns(UserWarning, match=r"1000000000 in data row 49"):
        found = mmb.data.load("table", path=path, labels="y", fractions=(1, 0, 0))
    assert found.encoder.columns[0].fill == statistics.median_low(
        [1e9 if row == 48 else row % 7 for row in range(0, 60, 2)]
    )


def test_a_changed_table_is_prepared_again_and_a_damaged_cache_heals(path, tmp_path, way):
    if way == "in memory":
        pytest.skip("nothing is prepared")
    first = mmb.data.load("table", path=path, **OPTIONS)
    (folder,) = (f for f in (tmp_path / "root" / "table").iterdir() if f.is_dir())
    (folder / "values.npy").write_bytes(b"x" + (folder / "values.npy").read_bytes()[1:])
    for file in folder.parent.glob("*.json"):
        file.write_text(file.read_text().replace("fill", "full"))
    again = mmb.data.load("table", path=path, **OPTIONS)
    assert torch.equal(again.inputs, first.inputs)
    path.write_text(TABLE.replace("2,20", "2,200"))
    changed = mmb.data.load("table", path=path, **OPTIONS)
    assert not torch.equal(changed.inputs, first.inputs)
    assert len([f for f in folder.parent.iterdir() if f.is_dir()]) == 1


def test_a_cache_that_may_only_be_read_serves_another_split(path, tmp_path, monkeypatch, way):
    first = mmb.data.load("table", path=path, **OPTIONS)
    if way == "prepared":
        folder = tmp_path / "root" / "table"
        before = sorted(folder.iterdir())

        def refuse(path, content):
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr("mmb.data.inputs.table_cache.write_whole", refuse)
    seventh = mmb.data.load("table", path=path, labels="sick,rich", drop="id,part", seed=7)
    assert torch.equal(seventh.labels, first.labels)
    if way == "prepared":
        again = mmb.data.load("table", path=path, **{**OPTIONS, "features": "age,city"})
        assert again.encoder == first.encoder
        assert [file for file in before if not file.exists()] == []


def test_a_column_of_numbers_may_turn_out_to_have_names(tmp_path, monkeypatch):
    polars = pytest.importorskip("polars")
    assert polars
    monkeypatch.setattr("mmb.data.files.frames._BLOCK", 50)
    path = tmp_path / "t.csv"
    path.write_text("code,x,y\n" + "".join(f"{r % 3},{r},{r % 2}\n" for r in range(60)) + "3+,5,1\n4,x,0\n")
    with pytest.raises(TableError, match=r"'x'.* 62"):
        mmb.data.load("table", path=path, labels="y", fractions=(1, 0, 0))
    data = mmb.data.load("table", path=path, labels="y", drop="x", fractions=(1, 0, 0))
    assert data.encoder.feature_names == ("code=0", "code=1", "code=2", "code=3+", "code=4")
    assert data.inputs.sum(0).tolist() == [20, 20, 20, 1, 1]


def test_files_of_their_own_for_the_parts(path, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("city,age,sick\nrome,1,1\noslo,2,0\n")
    options = {"path": path, "labels": "sick", "features": "age,city"}
    data = mmb.data.load("table", **options, test_path=new, fractions=(0.5, 0.5, 0))
    assert [len(data.split[part]) for part in ("train", "valid", "test")] == [3, 3, 2]
    assert data.labels[data.split["test"]].tolist() == [[1], [0]]
    both = mmb.data.load("table", **options, valid_path=new, test_path=new)
    assert {part: rows.tolist() for part, rows in both.split.items()} == {
        "train": [0, 1, 2, 3, 4, 5],
        "valid": [6, 7],
        "test": [8, 9],
    }
    new.write_text("city,age,sick\nrome,1,1\noslo,2,maybe\n")
    with pytest.raises(TableError, match=r"new\.csv.*'sick'.*'maybe'.* 2"):
        mmb.data.load("table", **options, test_path=new)


def test_groups_and_time(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(_random_table())
    options = {"path": path, "labels": "y0,y1", "drop": "many"}
    split = mmb.data.load("table", **options, group="who").split
    groups = [{int(row) // 4 for row in split[part]} for part in ("train", "valid", "test")]
    assert sum(map(len, groups)) == len(set.union(*groups)) == 75
    assert all(groups)
    split = mmb.data.load("table", **options, time="day").split
    days = [line.split(",")[0] for line in path.read_text().splitlines()[1:]]
    ends = [(min(found), max(found)) for found in ([days[r] for r in rows] for rows in split.values())]
    assert ends[0][1] < ends[1][0] <= ends[1][1] < ends[2][0]
    with pytest.raises(TableError, match=r"date.*'kind'"):
        mmb.data.load("table", **options, time="kind")
    with pytest.raises(TableError, match=r"'x'.*group"):
        mmb.data.load("table", **options, group="x")


def test_minus_one_is_a_gap_where_there_are_zeros(path):
    path.write_text(TABLE.replace("3,,rome,no", "3,,rome,-1"))
    assert mmb.data.load("table", path=path, **OPTIONS).labels[2, 0] == -1
    path.write_text("x,y\n1,1\n2,-1\n3,1\n")
    with pytest.raises(TableError, match=r"'y'.*-1.* 2.*negative"):
        mmb.data.load("table", path=path, labels="y", fractions=(1, 0, 0))


def test_columns_that_say_nothing_are_left_out_unless_they_are_named(tmp_path):
    path = tmp_path / "t.csv"
    rows = "".join(f"{k},P{k:03d},,1/2/{1900 + k},{k % 7},{k % 2}\n" for k in range(100))
    path.write_text(f",name,blank,born,x,y\n{rows}")
    data = mmb.data.load("table", path=path, labels="y")
    assert data.encoder.feature_names == ("Unnamed: 0", "x")
    assert list(data.details["left_out"]) == ["name", "blank", "born"]
    assert "80 different names in 80 training rows" in data.details["left_out"]["name"]
    assert "2024-01-31" in data.details["left_out"]["born"]
    encoder = encoder_from_json(json.loads(json.dumps(data.encoder.to_json())))
    assert encoder == data.encoder
    new = tmp_path / "new.csv"
    new.write_text("x,Unnamed: 0\n1,1\n")  # it needs no other columns
    assert torch.equal(read_new(encoder, new)[0], data.inputs[1:2])
    again = mmb.data.load("table", path=path, labels="y")  # what was learned is kept, and so are reasons
    assert again.details == data.details
    for name in ("name", "blank", "born"):
        with pytest.raises(TableError, match=f"'{name}'"):
            mmb.data.load("table", path=path, labels="y", features=["x", name])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"labels": "sick", "features": "age,sick"}, r"data\.features names 'sick'"),
        ({"labels": "sick", "group": "sick"}, r"data\.labels names 'sick'"),
        ({"labels": "nobody", "features": "age"}, r"no column 'nobody'.*(.|\n)*data\.labels"),
        ({"labels": "*", "drop": "x"}, r"no column 'x'.*(.|\n)*data\.drop"),
        ({"labels": "*"}, "no columns are left for features"),
    ],
)
def test_a_column_has_one_use(path, options, told):
    with pytest.raises(TableError, match=told):
        mmb.data.load("table", path=path, **options)


def test_patterns_stand_for_columns(path):
    data = mmb.data.load("table", path=path, labels="?ic*", drop="i?", split_column="part")
    assert data.task_names == ("sick", "rich")
    data = mmb.data.load("table", path=path, labels="sick", features="a*", drop="id", split_column="part")
    assert data.encoder.feature_names == ("age",)
    with pytest.raises(TableError, match=r"'z\*'"):
        mmb.data.load("table", path=path, labels="z*", split_column="part")
    data = mmb.data.load("table", path=path, labels="sick", features="*", drop="r*", split_column="part")
    assert {column.name for column in data.encoder.columns} == {"id", "age", "city"}


def test_it_may_be_said_which_cells_are_positive(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y,z\n1,benign,2\n2,malignant,1\n3,,2.0\n4,unsure,\n")
    data = mmb.data.load("table", path=path, labels="y", positive="malignant,unsure", drop="z")
    assert data.labels.flatten().tolist() == [0, 1, -1, 1]
    data = mmb.data.load("table", path=path, labels="z", positive="2", drop="y")
    assert data.labels.flatten().tolist() == [1, 0, 1, -1]
    with pytest.raises(TableError, match=r"'y'.*'benign'.* row 1(.|\n)*data\.positive="):
        mmb.data.load("table", path=path, labels="y")
    with pytest.raises(TableError, match=r"'z' has no cell.*malignant"):
        mmb.data.load("table", path=path, labels="y,z", positive="malignant")


def test_decimal_commas_are_read_where_semicolons_separate_cells(tmp_path, way):
    points, commas, tabs = tmp_path / "points.csv", tmp_path / "commas.csv", tmp_path / "tabs.tsv"
    draw = random.Random(0)
    rows = [(f"{draw.gauss(0, 5):.3f}", f"{draw.random():.2e}", str(k), str(k % 2)) for k in range(60)]
    points.write_text("a,b,c,y\n" + "".join(",".join(row) + "\n" for row in rows))
    text = "a;b;c;y\n" + "".join(";".join(row).replace(".", ",") + "\n" for row in rows)
    commas.write_text(text)
    tabs.write_text(text.replace(";", "\t"))
    expected = mmb.data.load("table", path=points, labels="y")
    data = mmb.data.load("table", path=commas, labels="y")
    assert torch.equal(data.inputs, expected.inputs)
    assert torch.equal(read_new(expected.encoder, commas)[0], expected.inputs)
    batch = next(expected.encoder.batches(commas))
    assert torch.equal(batch.inputs, expected.inputs)
    assert batch.columns["a"][0] == rows[0][0].replace(".", ",")  # predictions have cells as they are
    with pytest.raises(TableError, match="commas"):
        mmb.data.load("table", path=tabs, labels="y")  # where 1,234 may be a thousand and more


def test_columns_without_a_name_are_called_by_their_place(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(",x,,y\n" + "".join(f"{k},{k % 5},,{k % 2}\n" for k in range(30)))
    data = mmb.data.load("table", path=path, labels="y", drop="Unnamed: 0")
    assert data.encoder.feature_names == ("x",)
    assert list(data.details["left_out"]) == ["Unnamed: 2"]


def test_groups_and_times_hold_for_files_of_their_own(tmp_path):
    train, valid = tmp_path / "train.csv", tmp_path / "valid.csv"
    train.write_text(
        "x,site,day,y\n" + "".join(f"{k},s{k % 9},2024-01-{k % 28 + 1:02d},{k % 2}\n" for k in range(60))
    )
    options = {"path": train, "valid_path": valid, "labels": "y", "features": "x", "fractions": (1, 0, 0)}
    valid.write_text("x,site,day,y\n1,t0,2024-02-01,1\n2,s4,2024-01-05,0\n")
    with pytest.raises(TableError, match=r"valid\.csv: 1 row is.*'s4' in data row 2.* row 5 of .*train\.csv"):
        mmb.data.load("table", **options, group="site")
    with pytest.raises(
        TableError, match=r"valid\.csv.*2024-01-05.* row 2.*valid.*2024-01-28.* row 28 of .*train"
    ):
        mmb.data.load("table", **options, time="day")
    valid.write_text("x,site,day,y\n1,t0,2024-02-01,1\n2,t4,2024-01-29,0\n")
    data = mmb.data.load("table", **options, group="site", time="day")
    assert [len(data.split[part]) for part in ("train", "valid", "test")] == [60, 2, 0]


def test_dates_that_are_written_otherwise_are_warned_of(tmp_path):
    path = tmp_path / "t.csv"
    days = [date(2024, 1, 1) + timedelta(days=k % 80) for k in range(400)]
    for form in ("%d.%m.%Y", "%m/%d/%Y"):
        path.write_text("x,when,y\n" + "".join(f"{k},{day:{form}},{k % 2}\n" for k, day in enumerate(days)))
        with pytest.warns(UserWarning, match=r"'when' has 80 different names that may be dates.*2024-01-31"):
            mmb.data.load("table", path=path, labels="y")
    path.write_text("x,when,y\n" + "".join(f"{k},{day},{k % 2}\n" for k, day in enumerate(days)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "when" in mmb.data.load("table", path=path, labels="y").encoder.feature_names
