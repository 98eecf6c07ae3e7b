"""Exported models compute what the model computes."""

import pytest
import torch

from mmb._atomic_files import WriteError
from mmb.training import Run, train
from mmb.training.runs.export import ExportError, _difference, export_run
from tiny_runs import molecule_recipe, small_files, tiny_recipe


@pytest.mark.slow
def test_a_run_exports_to_torch_and_onnx(tmp_path):
    run = Run.create(tmp_path / "run", tiny_recipe("ce", training={"steps": 3}))
    train(run)
    found = export_run(run, tmp_path / "export")
    assert found["inputs"] == ["inputs"]
    assert all(difference <= 1e-5 for difference in found["largest_difference"].values())
    written = {path.name for path in (tmp_path / "export").iterdir()}
    assert written >= {"model.pt2", "model.onnx", "predictor.json"}
    one_row = torch.export.load(tmp_path / "export" / "model.pt2").module()(torch.zeros(1, 8))
    assert one_row.shape == (1, 4)


@pytest.mark.slow
def test_molecules_export_too(tmp_path):
    pytest.importorskip("rdkit")
    run = Run.create(tmp_path / "run", molecule_recipe(tmp_path, "ce", training={"steps": 3}))
    train(run)
    found = export_run(run, tmp_path / "export")
    assert found["inputs"] == ["atoms", "edges", "bonds", "graph", "graph_ptr", "edge_ptr"]
    assert all(difference <= 1e-5 for difference in found["largest_difference"].values())


def test_a_difference_is_noticed(tmp_path, monkeypatch):
    assert _difference(torch.tensor([1.0, 100.0]), torch.tensor([1.0, 100.1])) == pytest.approx(1e-3, rel=0.1)
    run = Run.create(tmp_path / "run", tiny_recipe("ce", training={"steps": 3}))
    train(run)
    load = torch.export.load

    def load_another(path):
        program = load(path)
        program.state_dict["model.bias"].data.add_(0.01)
        return program

    monkeypatch.setattr(torch.export, "load", load_another)
    with pytest.raises(ExportError, match="differs from the model"):
        export_run(run, tmp_path / "export")
    assert not list((tmp_path / "export").iterdir())


def test_an_export_that_fails_leaves_the_one_before(tmp_path):
    run = Run.create(tmp_path / "run", tiny_recipe("ce", training={"steps": 3}))
    train(run)
    export_run(run, tmp_path / "export")
    before = {path.name: path.read_bytes() for path in (tmp_path / "export").iterdir()}
    with (
        small_files(4096),
        pytest.raises(WriteError, match=r"cannot write .*export/model\.pt2: File too large"),
    ):
        export_run(run, tmp_path / "export")
    assert {path.name: path.read_bytes() for path in (tmp_path / "export").iterdir()} == before
