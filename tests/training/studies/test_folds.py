"""Cross-validation with scores of every row."""

import csv
import json

import pytest
import torch

from mmb.cli import main
from mmb.metrics import roc_auc


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folds")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 3, generator=generator)
    y = (x[:, 0] + 0.3 * torch.randn(120, generator=generator) > 0.5).long()
    lines = [
        f"p{k // 2},{a:.4f},{b:.4f},{c:.4f},{z}" for k, ((a, b, c), z) in enumerate(zip(x, y, strict=True))
    ]
    (folder / "t.csv").write_text("\n".join(["who,a,b,c,=sick", *lines]) + "\n")
    return folder


def test_every_row_is_scored_by_the_run_that_has_not_seen_it(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    words = ["train", "t.csv", "ce", "data.labels==sick", "data.group=who", "--folds", "4", "--output", "f"]
    words += ["training.steps=60", "training.tensorboard=false", "model.hidden=[8]", "data.split=stratified"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["runs"]) == ["fold-0", "fold-1", "fold-2", "fold-3"]
    with open("f/out_of_fold.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["row", "fold", "'=sick"]
    assert [int(row[0]) for row in rows] == list(range(1, 121))
    folds = torch.tensor([int(row[1]) for row in rows])
    assert all(26 <= count <= 34 for count in folds.bincount().tolist())
    assert torch.equal(folds[::2], folds[1::2])  # of the same person
    table = (folder / "t.csv").read_text().splitlines()
    labels = torch.tensor([int(line.rpartition(",")[2]) for line in table[1:]])
    scores = torch.tensor([float(row[2]) for row in rows])
    area = float(roc_auc(scores.unsqueeze(1), labels.unsqueeze(1))[0])
    assert area == pytest.approx(found["all"]["auc"], abs=1e-6)
    assert area > 0.7


def test_a_fold_that_cannot_train_a_task_gives_no_probabilities(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [f"{row},{row % 2},{int(row == 7)}" for row in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["x,sick,rare", *lines]) + "\n")
    words = ["train", "t.csv", "ce", "data.labels=sick,rare", "--folds", "3", "--output", "f", "--json"]
    words += ["training.steps=4", "training.tensorboard=false", "model.hidden=[]"]
    assert main(words) == 0
    with open("f/out_of_fold.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    own = rows[7]["fold"]  # whose test row is the only positive
    assert {row["rare"] == "" for row in rows if row["fold"] == own} == {True}
    assert "" not in {row["sick"] for row in rows}
    assert json.loads(capsys.readouterr().out)["all"]["auc"] >= 0


def test_a_data_set_without_folds_says_so(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(["train", "synthetic", "ce", "--folds", "4"]) != 0
    assert "folds" in capsys.readouterr().err
    assert main(["train", "t.csv", "ce", "data.labels==sick", "--folds", "2"]) != 0
    assert "folds" in capsys.readouterr().err
