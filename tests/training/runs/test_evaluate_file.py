"""A labeled file is evaluated like a part of the data."""

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from mmb.data import TableError
from mmb.training import Run, evaluate_file, evaluate_run, predict_file, train
from tiny_runs import tiny_recipe


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two runs of the same table that differ in seed, and the table."""
    folder = tmp_path_factory.mktemp("table")
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(300, generator=draw)
    sick = torch.rand(300, generator=draw) < x.sigmoid()
    rows = [
        f"{value:.4f},{'ill' if ill else 'well'}"
        for value, ill in zip(x.tolist(), sick.tolist(), strict=True)
    ]
    table, parts = folder / "train.csv", ["train", "train", "valid", "test"]
    table.write_text("\n".join(["x,a,part", *(f"{row},{parts[k % 4]}" for k, row in enumerate(rows))]))
    data = {"name": "table", "path": str(table), "labels": "a", "positive": "ill", "split_column": "part"}
    runs = []
    for seed in range(2):
        recipe = tiny_recipe("ce", data=data, seed=seed, training={"steps": 20})
        runs.append(Run.create(folder / f"run-{seed}", recipe))
        train(runs[-1])
    tested = folder / "tested.csv"
    tested.write_text("\n".join(["a,x", *(",".join(row.split(",")[::-1]) for row in rows[3::4])]))
    return runs, tested


def test_it_is_what_the_same_rows_have_as_test_rows(trained):
    runs, tested = trained
    found, expected = evaluate_file(runs[0], tested), evaluate_run(runs[0], "test")
    assert found["rows"] == 75
    for metric, value in expected["mean"].items():
        assert found["mean"][metric] == pytest.approx(value, abs=1e-9)
    result = runs[0].result()["tasks"]
    assert found["tasks"]["fpr"] == pytest.approx(result["test_fpr"])
    assert found["tasks"]["tpr"] == pytest.approx(result["test_tpr"])


def test_runs_are_averaged_and_rows_without_score_or_label_left_out(trained, tmp_path):
    runs, tested = trained
    lines = tested.read_text().splitlines()
    (tmp_path / "new.csv").write_text("\n".join([*lines, "ill,much", ",0.5", "well"]) + "\n")
    found = evaluate_file(runs, tmp_path / "new.csv", max_fpr=0.3)
    assert (found["rows"], found["unusable"], found["max_fpr"]) == (78, 2, 0.3)
    predict_file(runs, tested, tmp_path / "out.csv")
    scores = [float(line.split(",")[5]) for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    labels = [line.startswith("ill") for line in lines[1:]]
    assert found["tasks"]["auc"][0] == pytest.approx(roc_auc_score(labels, scores))
    assert found["tasks"]["pauc"][0] == pytest.approx(roc_auc_score(labels, scores, max_fpr=0.3))
    assert found["tasks"]["ap"][0] == pytest.approx(average_precision_score(labels, scores))
    assert found["tasks"]["positives"] == [sum(labels)]


def test_labels_written_otherwise_than_in_training_are_not_all_negative(trained, tmp_path):
    runs, tested = trained
    text = tested.read_text()
    (tmp_path / "new.csv").write_text(text.replace("ill,", "1,").replace("well,", "0,"))
    with pytest.raises(TableError, match=r"data\.positive=ill"):
        evaluate_file(runs[0], tmp_path / "new.csv")
    (tmp_path / "new.csv").write_text(text.replace("ill,", ",").replace("well,", ","))
    assert evaluate_file(runs[0], tmp_path / "new.csv")["tasks"]["negatives"] == [0]


def test_a_file_without_labels_is_refused(trained, tmp_path):
    runs, _ = trained
    (tmp_path / "new.csv").write_text("x\n1\n")
    with pytest.raises(TableError, match=r"no label columns.*'a'"):
        evaluate_file(runs[0], tmp_path / "new.csv")
