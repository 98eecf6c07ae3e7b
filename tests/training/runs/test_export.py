"""Exported models compute what the model computes."""

import os
from dataclasses import replace
from pathlib import Path

import onnxruntime
import pytest
import torch

from mmb._atomic_files import WriteError
from mmb.training import ExportError, Run, export_run, train
from mmb.training.runs import export
from mmb.training.runs.averaged_runs import AveragedRuns
from mmb.training.runs.calibrate import fit_calibration
from mmb.training.runs.exported_model import Probability
from tiny_runs import molecule_recipe, small_files, tiny_recipe


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A run, the folder it was exported to, what was said about that, and its converted model."""
    folder = tmp_path_factory.mktemp("runs")
    run = Run.create(folder / "run", tiny_recipe("ce", training={"steps": 3}))
    train(run)
    kept = []
    convert = export._convert
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "_convert", lambda *given: kept.append(convert(*given)) or kept[0])
        found = export_run(run, folder / "export")
    return run, folder / "export", found, kept[0]


@pytest.fixture
def converted_before(exported, monkeypatch):
    """Let exports of that run use the model as it was converted; what is tested comes after that."""
    monkeypatch.setattr(export, "_convert", lambda *given: exported[3])


def test_a_run_exports_to_torch_and_onnx(exported):
    _, folder, found, _ = exported
    assert found["inputs"] == ["inputs"]
    assert all(difference <= 1e-5 for difference in found["largest_difference"].values())
    assert {path.name for path in folder.iterdir()} >= {"model.pt2", "model.onnx", "predictor.json"}
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    assert [entry.name for entry in session.get_inputs()] == found["inputs"]
    assert [entry.name for entry in session.get_outputs()] == found["outputs"] == ["logits", "probabilities"]
    one_row, chance = torch.export.load(folder / "model.pt2").module()(torch.zeros(1, 8))
    assert one_row.shape == chance.shape == (1, 4)


def test_outputs_are_those_of_predictions(exported):
    run, folder, _, _ = exported
    averaged = AveragedRuns([run])
    rows = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    logits, chance = session.run(["logits", "probabilities"], {"inputs": rows.numpy()})
    expected = averaged.predictors[0].logits(rows)
    torch.testing.assert_close(torch.from_numpy(logits), expected, rtol=1e-5, atol=1e-5)
    probabilities = averaged.calibration(expected).float()
    torch.testing.assert_close(torch.from_numpy(chance), probabilities, rtol=1e-4, atol=1e-5)


def test_steps_of_probabilities_can_be_exported_too():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3000, 2, generator=generator)
    labels = (torch.rand(3000, 2, generator=generator) < 0.1 + 0.6 * (logits > 0.5)).to(torch.int8)
    found = fit_calibration(logits, labels)
    assert found.stepped.all()
    torch.testing.assert_close(Probability(found)(logits), found(logits).float(), rtol=0, atol=1e-5)


def test_an_average_of_runs_exports(exported, tmp_path):
    run, *_ = exported
    other = Run.create(tmp_path / "other", replace(run.recipe, seed=run.recipe.seed + 1))
    train(other)
    found = export_run([run, other], tmp_path / "average")
    assert all(difference <= 1e-5 for difference in found["largest_difference"].values())
    averaged, rows = AveragedRuns([run, other]), torch.zeros(2, 8)
    session = onnxruntime.InferenceSession(tmp_path / "average" / "model.onnx")
    (scores, _) = session.run(None, {"inputs": rows.numpy()})
    expected = averaged.average([one.logits(rows) for one in averaged.predictors]).float()
    torch.testing.assert_close(torch.from_numpy(scores), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_molecules_export_too(tmp_path):
    pytest.importorskip("rdkit")
    run = Run.create(tmp_path / "run", molecule_recipe(tmp_path, "ce", training={"steps": 3}))
    train(run)
    found = export_run(run, tmp_path / "export")
    assert found["inputs"] == ["atoms", "edges", "bonds", "graph", "graph_ptr", "edge_ptr"]
    assert all(difference <= 1e-5 for difference in found["largest_difference"].values())


def test_a_difference_is_noticed(exported, converted_before, tmp_path, monkeypatch):
    difference = export._difference(torch.tensor([1.0, 100.0]), torch.tensor([1.0, 100.1]))
    assert difference == pytest.approx(1e-3, rel=0.1)
    load = torch.export.load

    def load_another(path):
        program = load(path)
        program.state_dict["scores.0.model.bias"].data.add_(0.01)
        return program

    monkeypatch.setattr(torch.export, "load", load_another)
    with pytest.raises(ExportError, match="differs"):
        export_run(exported[0], tmp_path / "export")
    assert not list(tmp_path.iterdir())


class Steep(torch.nn.Module):
    """Logits as given, and probabilities that rise a thousand times as fast."""

    probability = staticmethod(lambda logits: (1000 * logits).clamp(0, 1))

    def forward(self, logits):
        return logits, self.probability(logits)


def test_probabilities_are_compared_with_those_of_the_exported_logits():
    model, logits = Steep(), torch.tensor([[0.0005]])
    rounded = model(logits + 1e-6)
    assert abs(rounded[1] - model(logits)[1]) > 0.9e-3
    pairs = list(export._paired(rounded, (logits,), model))
    assert max(export._difference(*pair) for pair in pairs) <= export.TOLERANCE
    wrong = list(export._paired((rounded[0], rounded[1] + 1e-3), (logits,), model))
    assert export._difference(*wrong[0]) <= export.TOLERANCE < export._difference(*wrong[1])


def test_an_export_that_fails_leaves_the_one_before(exported, converted_before):
    run, folder, *_ = exported
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with (
        small_files(4096),
        pytest.raises(WriteError, match=r"export/model\.pt2: File too large"),
    ):
        export_run(run, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert not list(folder.parent.glob(".export*"))


def test_an_export_takes_the_place_of_the_one_before_as_a_whole(exported, converted_before, monkeypatch):
    run, folder, *_ = exported
    (folder / "model.onnx").write_bytes(b"old")
    (folder / ".new-abc").mkdir()  # of an earlier version
    moved, replace = [], os.replace

    def watch(source, target):
        moved.append((Path(source).is_dir(), Path(target).name == folder.name))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    export_run(run, folder)
    assert moved == [(True, False), (True, True)]  # the old folder, and the new one
    assert (folder / "model.onnx").read_bytes() != b"old"
    assert not (folder / ".new-abc").exists()
    assert not list(folder.parent.glob(".export*"))


def test_a_failed_rename_brings_the_export_before_back(exported, converted_before, monkeypatch):
    run, folder, *_ = exported
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    moved, replace = [], os.replace

    def fail_second(source, target):
        moved.append(source)
        if len(moved) == 2:
            raise PermissionError(13, "in use", str(source))
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail_second)
    with pytest.raises(WriteError, match="in use"):
        export_run(run, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert not list(folder.parent.glob(".export*"))


def test_a_folder_with_other_files_is_refused(exported, tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ExportError, match=r"thesis\.tex.*--output"):
        export_run(exported[0], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
