"""The gallery: every example runs, on small data in the layouts that users have."""

import csv
import importlib.util
import itertools
import math
import random
import re
from pathlib import Path

import pytest
import torch

from data.image_sets import write_chexpert, write_own

ROOT = Path(__file__).parents[2]


def example(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("[!_]*.py")), ids=lambda path: path.stem)
def test_examples_are_short_and_on_a_page(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 130
    assert f'"examples/{path.name}"' in (ROOT / "docs" / "gallery" / f"{path.stem}.md").read_text(
        encoding="utf-8"
    )


def test_hyperparameters_find_the_features_that_matter(capsys):
    found = example("hyperparameters").main(num_tasks=150, features=8, relevant=3, steps=300)
    assert found["penalties"][:3].max() < 0.5 * found["penalties"][3:].min()
    assert found["a penalty per feature"] < 0.97 * found["one penalty"]


@pytest.fixture
def steps_for_seconds(monkeypatch):
    """A clock in which every step of a method takes a second: the same result on every machine."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    race, clock = importlib.import_module("_race"), itertools.count()
    monkeypatch.setattr(race, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(race, "POINTS", 4)


def test_constraints_help_the_worst_group(steps_for_seconds, tmp_path, capsys):
    found = example("fair_classification").main(400, tmp_path / "figure.svg")
    loss, wrong = found["training loss of the worst digit"], found["wrong test images of the worst digit"]
    assert loss["mmb.auto"] < 0.35 < 0.4 < loss["no constraints"]
    assert wrong["mmb.auto"] < wrong["no constraints"]
    assert 0 < len(found["digits with a price"]) < 10
    assert "<svg" in (tmp_path / "figure.svg").read_text(encoding="utf-8")


def test_robust_regressions_where_taking_turns_does_not_converge(steps_for_seconds, capsys):
    found = example("robust_regression").main(150, figure=None)
    assert found["objective"]["mmb.auto"] < 0.42 < 2 < found["objective"]["taking turns"]
    assert found["worst group"]["mmb.auto"] < 0.95 * found["worst group"]["least squares"]


def test_penalties_beyond_a_grid(steps_for_seconds, capsys):
    found = example("penalty_per_task").main(300, figure=None)
    assert found["validation loss"]["mmb.auto"] < 0.85 * found["validation loss"]["grid search"]


def test_weights_of_rows_undo_wrong_labels(steps_for_seconds, capsys):
    known = example("data_reweighting").main(40, figure=None)["recognized test images"]
    assert known["mmb.auto"] > known["right rows alone"] + 0.02
    assert known["mmb.auto"] > known["all rows"] + 0.1


def test_molecules_from_smiles_to_decisions(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MMB_DATA", str(tmp_path / "cache"))
    table, new = assay_table(tmp_path / "assays.csv"), tmp_path / "new.csv"
    new.write_text("smiles\nOCCc1ccccc1\nNCCc1ccccc1\nnot a molecule\n")
    found = example("molecules").main(
        table,
        new,
        tmp_path / "runs",
        model={"name": "mlp", "hidden": [32]},
        sampler={"batch_size": 32, "rich_fraction": 0.5},
        training={"steps": 150, "evaluate_every": 50, "tensorboard": False, "device": "cpu"},
    )
    assert set(found["test pauc"]) == {"ce", "pauc"}
    assert min(found["test pauc"].values()) > 0.8
    rows = (tmp_path / "runs" / "scores.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 4
    assert rows[3].startswith("3,0")  # flagged as unusable
    assert "<html" in (tmp_path / "runs" / "report.html").read_text(encoding="utf-8")


def assay_table(path):
    """Tasks are a hydroxyl and an amine at the end of a chain on a ring, with gaps."""
    flat = "c1ccccc1 c1ccncc1 c1cncnc1 c1ccsc1 c1ccoc1 C1CCCCC1 C1CCCC1 C1CCC1 C1CC1 C1CCOCC1 C1COC1 C1CCSCC1"
    rings = [*flat.split(), "C1CCOC1", "C1CSC1", "C1CCCCCC1", "C1CCSC1", "C1OCOC1", "C1COCCO1"]  # scaffolds
    ends = ["O", "N", "C", "Cl", "F", "CO", "CN", "C#N"]
    smiles = [f"{end}{'C' * length}{ring}" for ring, end, length in itertools.product(rings, ends, (2, 3, 4))]
    lines = ["smiles,oxygen,amine"]
    for number, text in enumerate(smiles):
        measured = "" if number % 7 == 3 else int(text.startswith("N"))
        lines.append(f"{text},{int(text.startswith('O'))},{measured}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_chemprops_network_with_its_loss_and_with_others(tmp_path, monkeypatch, capsys):
    chemprop = pytest.importorskip("chemprop")
    monkeypatch.setenv("MMB_DATA", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    module = importlib.import_module("chemprop_molecules")
    found = module.main(
        assay_table(tmp_path / "assays.csv"),
        (module.CONTROL, "pauc"),
        width=16,
        optimizer={"lr": 0.01},
        sampler={"batch_size": 64},
        training={"steps": 40, "evaluate_every": 20, "device": "cpu"},
    )
    assert {*found} == {module.CONTROL, "pauc"}
    assert min(one["auc"] for one in found.values()) > 0.8
    # the control is what chemprop computes for the same scores
    labels = torch.tensor([[1, -1], [0, 1], [0, 0], [1, 1]], dtype=torch.int8)
    scores = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    known = labels >= 0
    expected = chemprop.nn.BCELoss()(scores, labels.clamp(min=0).float(), known)
    torch.testing.assert_close(module.ChempropLoss(labels)(scores, labels), expected)


def test_texts_with_a_transformer(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    choose = random.Random(0).choice
    words = ["the", "a", "good", "bad", "car", "dog", "house", "runs", "sleeps", "here", "there", "now"]
    lines = ["text,good,dog"]
    for number in range(300):
        text = " ".join(choose(words) for _ in range(6))
        lines.append(f"{text},{int('good' in text)},{'' if number % 9 == 4 else int('dog' in text)}")
    (tmp_path / "texts.csv").write_text("\n".join(lines) + "\n")
    result = example("text_encoder").main(
        tmp_path / "texts.csv",
        width=16,
        optimizer={"lr": 0.01, "lr_encoder": 0.005},
        sampler={"batch_size": 64},
        training={"steps": 60, "evaluate_every": 30, "device": "cpu"},
    )
    assert result["test"]["auc"] > 0.8


def test_own_images_with_an_own_network(tmp_path, monkeypatch):
    monkeypatch.setenv("MMB_DATA", str(tmp_path / "cache"))
    options = write_own(tmp_path / "mine", 90)
    new = tmp_path / "new.csv"
    new.write_text("file\n0.jpg\n3.png\n6.jpg\n1.png\n2.jpg\n4.jpg\nnone.jpg\n")  # three bright, three dark
    found = example("own_images").main(
        options["path"],
        options["root"],
        new,
        tmp_path / "run",
        optimizer={"lr": 0.01},
        sampler={"batch_size": 24},
        training={"steps": 24, "evaluate_every": 12, "device": "cpu", "batch_norm": "recalibrate"},
    )
    assert found["test"]["auc"] > 0.5
    with (tmp_path / "run" / "scores.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["usable"] for row in rows] == ["1"] * 6 + ["0"]
    bright = [float(row["bright"]) for row in rows[:6]]
    assert min(bright[:3]) > max(bright[3:])


def test_chest_xrays_in_the_official_layout(tmp_path, capsys):
    from mmb import data

    source = write_chexpert(tmp_path / "source", train=16, valid=6)
    data.get("chexpert", tmp_path / "root", source)
    found = example("chest_xrays").main(
        tmp_path / "root", batch_size=4, epochs=(1, 1), device="cpu", size=32, held_out=6, workers=0
    )
    assert set(found) == {"roc_auc", "partial_auc", "average_precision", "fpr"}
    assert list(found["roc_auc"]) == list(data.load("chexpert", tmp_path / "root", held_out=6).task_names)
    assert all(0 <= value <= 1 for one in found.values() for value in one.values() if not math.isnan(value))
    printed = capsys.readouterr().out
    assert re.search(r"CrossEntropy.*loss", printed)
    assert re.search(r"PartialAUC.*dual_error", printed)
    assert "nan" not in printed
    assert torch.isfinite(torch.tensor(list(found["roc_auc"].values()))).all()
