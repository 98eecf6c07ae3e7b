from dataclasses import replace

import torch

import mmb.data
from mmb.data import make_dataset
from mmb.data.checks import find_problems


def _table(path, rows):
    path.write_text("patient_id,x,code,y\n" + "".join(f"{line}\n" for line in rows))
    return mmb.data.load("table", path=path, labels="y", seed=1)


def test_a_sound_table_is_not_warned_about(tmp_path):
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(200, generator=draw).tolist()
    rows = [f"{k % 12},{x[k]:.5f},{k % 7},{k % 2}" for k in range(200)]
    assert find_problems(_table(tmp_path / "t.csv", rows)) == []


def test_identifiers_and_repeated_rows_are_found(tmp_path):
    rows = [f"{1000 + 37 * k},{k * 0.25},{k},{k % 2}" for k in range(100)]
    found = find_problems(_table(tmp_path / "t.csv", rows))
    assert ["'patient_id'" in text or "'code'" in text for text in found] == [True, True]
    copies = [f"{k % 10},{k % 5},{k % 3},{k % 2}" for k in range(100)]
    first, second = find_problems(_table(tmp_path / "u.csv", copies))
    assert "10 of 10 valid rows" in first
    assert "10 of 10 test rows" in second


def test_tasks_that_cannot_be_measured_are_named():
    labels = torch.zeros(40, 2, dtype=torch.int8)
    labels[::2, 0] = 1
    labels[0, 1] = 1
    split = {"train": torch.arange(20), "valid": torch.arange(20, 30), "test": torch.arange(30, 40)}
    inputs = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    valid, test = find_problems(make_dataset(inputs, labels, split=split, task_names=["a", "b"]))
    assert "valid rows" in valid
    assert "measured: b" in valid
    assert "test rows" in test


def test_negative_zero_is_zero_and_order_matters():
    inputs = torch.tensor([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0], [5.0, 6.0]])
    split = {"train": torch.tensor([0]), "valid": torch.tensor([1]), "test": torch.tensor([2, 3])}
    labels = torch.tensor([[1], [0], [1], [0]])
    repeated = [text for text in find_problems(make_dataset(inputs, labels, split=split)) if "same" in text]
    assert len(repeated) == 1
    assert "1 of 1 valid" in repeated[0]


def test_advice_has_keys_of_recipes_and_large_inputs_are_not_read(tmp_path):
    rows = [f"{1000 + 37 * k},{k * 0.25},{k},{k % 2}" for k in range(100)]
    data = _table(tmp_path / "t.csv", rows)
    assert any("data.drop=patient_id" in text for text in find_problems(data, "data."))
    copies = _table(tmp_path / "u.csv", [f"{k % 10},{k % 5},{k % 3},{k % 2}" for k in range(100)])
    assert find_problems(copies, most=100) == []

    class Untouched:
        def __len__(self):
            return 100

        def __getitem__(self, rows):
            raise AssertionError("inputs were read")

    assert find_problems(replace(copies, inputs=Untouched()), most=0) == []


def test_columns_that_say_whom_a_row_belongs_to_are_found(tmp_path):
    path = tmp_path / "t.csv"
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(200, generator=draw).tolist()
    rows = [f"{100 + k // 4},P{k // 4},{k // 4},{x[k]:.4f},{k % 2}" for k in range(200)]
    path.write_text("patient_id,subject,city,x,y\n" + "\n".join(rows) + "\n")
    found = find_problems(mmb.data.load("table", path=path, labels="y"), "data.")
    assert ["data.group=patient_id" in text or "data.group=subject" in text for text in found] == [True, True]
    assert "50 values in 200 rows" in found[0]
    options = {"group": "patient_id", "drop": "subject"}
    assert find_problems(mmb.data.load("table", path=path, labels="y", **options)) == []


def test_rows_are_named_as_in_their_own_file(tmp_path, monkeypatch):
    train, valid = tmp_path / "t.csv", tmp_path / "v.csv"
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(400, generator=draw).tolist()
    train.write_text("x,y\n" + "".join(f"{value},{k % 2}\n" for k, value in enumerate(x)))
    valid.write_text(f"x,y\n0.5,1\n{x[3]},0\n0.25,0\n")
    for small in (1 << 24, -1):  # in memory, and prepared
        monkeypatch.setattr("mmb.data.sets.table._SMALL", small)
        data = mmb.data.load("table", tmp_path, path=train, valid_path=valid, labels="y", fractions=(1, 0, 0))
        found = find_problems(data, "data.")
        assert "no test rows" in found[0]
        assert len(found) == 2
        assert "1 of 3 valid rows" in found[1]
        assert "(rows 2 of v.csv)" in found[1]
        assert "group" not in found[1]


def test_parts_without_rows_are_named(tmp_path):
    draw = torch.Generator().manual_seed(0)
    rows = [
        f"{k % 12},{x:.5f},{k % 7},{k % 2}" for k, x in enumerate(torch.randn(200, generator=draw).tolist())
    ]
    _table(tmp_path / "t.csv", rows)
    data = mmb.data.load("table", path=tmp_path / "t.csv", labels="y", fractions=(0.5, 0.5, 0))
    (problem,) = find_problems(data)
    assert "no test rows" in problem


def test_stratification_is_advised_where_it_helps_alone(tmp_path):
    path = tmp_path / "t.csv"
    draw = torch.Generator().manual_seed(0)
    cells = torch.randn(100, generator=draw).tolist()
    lines = [
        f"{x:.5f},1,{int(k in (0, 1, 2, 50))},{k % 2},{'train' if k < 60 else 'test'}"
        for k, x in enumerate(cells)
    ]
    path.write_text("x,all,few,half,part\n" + "\n".join(lines) + "\n")

    def problems(labels, **options):
        options = {"split_column": None, "drop": "part", **options}
        return [
            text
            for text in find_problems(mmb.data.load("table", path=path, labels=labels, **options))
            if "tasks" in text
        ]

    assert not any("stratified" in text for text in problems("all,half"))
    assert len(problems("all,half")) == 3
    assert any("split=stratified" in text for text in problems("few,half"))
    assert problems("few,half", split="stratified") == []
    given = problems("few,half", drop="all", split_column="part")
    assert given
    assert not any("stratified" in text for text in given)
