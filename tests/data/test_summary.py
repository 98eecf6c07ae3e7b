import torch

import mmb.data
from mmb.data import make_dataset
from mmb.data.summary import summarize_data


def test_columns_labels_and_what_was_left_out_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("MMB_DATA", str(tmp_path))
    path = tmp_path / "t.csv"
    days = [f"2020-{k % 12 + 1:02d}-{k % 28 + 1:02d}" for k in range(200)]
    rows = [
        f"p{k},{k % 9},{day},{'ab'[k % 2]},{k % 4 == 0:d},{'' if k % 2 else 1}" for k, day in enumerate(days)
    ]
    path.write_text("id,x,day,k,y,z\n" + "\n".join(rows) + "\n")
    found = summarize_data(mmb.data.load("table", path=path, labels="y,z"))
    assert found[:5] == [
        "rows: 200 (160 train, 20 valid, 20 test)",
        "labels: y (50 of 200 positive), z (100 of 100 positive); 25.0% are gaps",
        "numbers: x",
        "dates: day",
        "names: k (2 values)",
    ]
    assert found[5].startswith("left out: id: has 160 different names in 160 training rows")
    assert len(found) == 6


def test_many_tasks_are_counted_and_not_listed():
    labels = (torch.arange(100).unsqueeze(1) < torch.arange(1, 21)).to(torch.int8)
    _, line = summarize_data(make_dataset(torch.randn(100, 2), labels))
    assert line == "labels: 20 (0, 1, 2 and 17 more), with 1 to 20 positives, 10 at the median"
