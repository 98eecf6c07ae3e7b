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


def test_columns_that_may_divide_patients_are_named_where_they_are_no_inputs(tmp_path):
    names = [f"{'C' * (k + 1)}O" for k in range(60)]
    rows = "".join(f"{name},{k % 2},P{k // 2},n{k // 2}\n" for k, name in enumerate(names))
    (tmp_path / "m.csv").write_text(f"smiles,y,patient_id,note\n{rows}")
    options = {"path": tmp_path / "m.csv", "features": "fingerprint", "bits": 8, "split": "random"}

    def found(**more):
        dataset = mmb.data.load("molecules", tmp_path, **options, **more)
        return [text for text in find_problems(dataset, "data.") if text.startswith("column")]

    (only,) = found()
    assert "'patient_id' has 30 values" in only
    assert "data.group=patient_id" in only
    assert found(group="patient_id") == []
