import importlib
import zipfile

import pytest
import torch

import mmb.data
from mmb.data import DamagedDataError, MissingDataError
from mmb.data.sets.chexpert import OBSERVATIONS

pytest.importorskip("PIL")
image_sets = importlib.import_module("data.image_sets")


def test_chexpert_as_published(tmp_path):
    base = image_sets.write_chexpert(tmp_path / "source")
    for source in (base, base.parent):
        root = tmp_path / f"root-{source.name}"
        mmb.data.get("chexpert", root, source)
        data = mmb.data.load("chexpert", root, held_out=2, size=32, workers=0)
        assert [len(data.split[part]) for part in ("train", "valid", "test")] == [7, 2, 3]
        assert data.split["valid"].tolist() == [7, 8]
        assert data.task_names == OBSERVATIONS
        assert len(OBSERVATIONS) == 13
        assert "Fracture" not in OBSERVATIONS
        batch = data.batch(torch.tensor([0, 11]))
        assert batch.shape == (2, 3, 32, 32)
    frontal = mmb.data.load("chexpert", root, held_out=2, size=32, frontal_only=True)
    assert [len(frontal.split[part]) for part in ("train", "valid", "test")] == [4, 2, 2]
    assert torch.equal(frontal.labels[:2], data.labels[:2])
    assert torch.equal(frontal.labels[2], data.labels[3])


@pytest.mark.parametrize("path", ["", "view1_frontal.jpg"])
def test_chexpert_names_the_row_without_an_image(tmp_path, path):
    base = image_sets.write_chexpert(tmp_path / "source")
    lines = (base / "train.csv").read_text().split("\n")
    lines[4] = ",".join([path, *lines[4].split(",")[1:]])
    (base / "train.csv").write_text("\n".join(lines))
    mmb.data.get("chexpert", tmp_path, base)
    with pytest.raises(DamagedDataError, match=f"data row 4.*path '{path}'"):
        mmb.data.load("chexpert", tmp_path, held_out=2)


def test_chexpert_policies(tmp_path):
    mmb.data.get("chexpert", tmp_path, image_sets.write_chexpert(tmp_path / "source"))

    def first(**options):
        data = mmb.data.load("chexpert", tmp_path, held_out=2, **options)
        return dict(zip(data.task_names, data.labels[0].tolist(), strict=True))

    # The first row has 1, 0, -1, blank in turn over the 14 observations of the file.
    order = [*OBSERVATIONS[:12], "Fracture", OBSERVATIONS[12]]
    raw = {name: (1, 0, "?", "")[j % 4] for j, name in enumerate(order) if name != "Fracture"}
    doubtful = [name for name, value in raw.items() if value == "?"]
    blank = [name for name, value in raw.items() if value == ""]
    sure = {name: value for name, value in raw.items() if value in (0, 1)}
    assert doubtful == ["Cardiomegaly", "Consolidation", "Pleural Effusion"]
    for policy, value in (("zeros", 0), ("ones", 1), ("ignore", -1)):
        labels = first(uncertain=policy)
        assert {labels[name] for name in doubtful} == {value}
        assert {labels[name] for name in blank} == {0}
        assert {name: labels[name] for name in sure} == sure
    assert {first(unmentioned="ignore")[name] for name in blank} == {-1}
    mixed = mmb.data.load("chexpert", tmp_path, held_out=2)
    ones = mmb.data.load("chexpert", tmp_path, held_out=2, uncertain="ones")
    zeros = mmb.data.load("chexpert", tmp_path, held_out=2, uncertain="zeros")
    assert not torch.equal(ones.labels, zeros.labels)
    for j, name in enumerate(OBSERVATIONS):
        expected = ones if name in ("Edema", "Atelectasis") else zeros
        assert torch.equal(mixed.labels[:, j], expected.labels[:, j])


def test_chexpert_mistakes_are_named(tmp_path):
    with pytest.raises(MissingDataError, match=r"(?s)chexpert.*register"):
        mmb.data.get("chexpert", tmp_path)
    base = image_sets.write_chexpert(tmp_path / "source")
    mmb.data.get("chexpert", tmp_path, base)
    with pytest.raises(ValueError, match="held_out"):
        mmb.data.load("chexpert", tmp_path)
    with pytest.raises(ValueError, match=r"uncertain.*twos"):
        mmb.data.load("chexpert", tmp_path, uncertain="twos", held_out=2)
    table = base / "train.csv"
    table.write_text(table.read_text().replace("-1.0", "7.0", 1))
    with pytest.raises(DamagedDataError, match="data row 1"):
        mmb.data.load("chexpert", tmp_path, held_out=2)


def test_chexpert_from_its_archive(tmp_path):
    base = image_sets.write_chexpert(tmp_path / "source")
    archive = tmp_path / "zipped" / "CheXpert-v1.0-small.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w") as bundle:
        bundle.writestr("CheXpert-v1.0-small/../../evil.jpg", b"")
        for path in base.rglob("*"):
            bundle.write(path, path.relative_to(base.parent))
    mmb.data.get("chexpert", tmp_path / "root", archive.parent)
    mmb.data.get("chexpert", tmp_path / "linked", base)
    unpacked, linked = (
        mmb.data.load("chexpert", tmp_path / root, held_out=2, size=16, workers=0)
        for root in ("root", "linked")
    )
    rows = torch.arange(12)
    assert torch.equal(unpacked.batch(rows), linked.batch(rows))
    assert not list(tmp_path.rglob("evil.jpg"))
    archive.write_bytes(archive.read_bytes()[:-200])
    with pytest.raises(DamagedDataError, match="cut short"):
        mmb.data.get("chexpert", tmp_path / "other", archive.parent)
    assert not list((tmp_path / "other" / "chexpert" / "raw").iterdir())
