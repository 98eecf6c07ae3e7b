import importlib
import json
import zipfile

import pytest
import torch

import mmb.data
from mmb.data import DamagedDataError, MissingDataError, encoder_from_json
from mmb.data.inputs.image_files import Decoder, ImageEncoder, ImageFiles
from mmb.data.inputs.images import Pixels
from mmb.data.sets.chexpert import OBSERVATIONS

pytest.importorskip("PIL")
image_sets = importlib.import_module("data.image_sets")
np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def folder(tmp_path):
    for k in range(7):
        (tmp_path / f"{k}.jpg").write_bytes(image_sets.photo(k, (60, 40)))
    return tmp_path


def files(folder, workers, names=None):
    names = names or [f"{k}.jpg" for k in range(7)]
    pixels = Pixels.of((0.5,) * 3, (0.5,) * 3, pad=2, flip=True)
    return ImageFiles(folder, names, Decoder(16), pixels, workers)


def test_decoding_crops_the_middle_or_stretches(tmp_path):
    striped = np.zeros((20, 60, 3), np.uint8)
    striped[:, 20:40] = 255  # white in the middle third
    Image.fromarray(striped).save(tmp_path / "s.png")
    assert (Decoder(20)(tmp_path / "s.png") == 255).all()
    stretched = Decoder(20, gray=True, fit="stretch")(tmp_path / "s.png")
    assert stretched.shape == (1, 20, 20)
    assert stretched[0, :, 10].min() == 255
    assert stretched[0, :, [0, 19]].max() == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_streams_keep_their_order_and_augment_as_one_by_one(folder, workers):
    inputs = files(folder, workers)
    batches = [torch.tensor(rows) for rows in ([3, 1], [6], [0, 2, 4, 5], [1, 1])]
    plain = list(inputs.stream(iter(batches), None))
    assert [rows.tolist() for rows, _ in plain] == [rows.tolist() for rows in batches]
    assert all(torch.equal(images, inputs[rows]) for rows, images in plain)
    generator, other = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    for (_, images), rows in zip(inputs.stream(batches, generator), batches, strict=True):
        assert torch.equal(images, inputs.augmented(rows, other))
    assert torch.equal(generator.get_state(), other.get_state())


def test_streams_leave_the_global_generator_alone(folder):
    before = torch.get_rng_state()
    list(files(folder, 2).stream([torch.tensor([0])], None))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_image_is_named_wherever_it_is_decoded(folder, workers):
    (folder / "bad.jpg").write_bytes(image_sets.photo(0, (60, 40))[:200])
    inputs = files(folder, workers, ["0.jpg", "bad.jpg", "none.jpg"])
    with pytest.raises(DamagedDataError, match=r"bad\.jpg is damaged"):
        list(inputs.stream([torch.tensor([0]), torch.tensor([1])], None))
    with pytest.raises(MissingDataError, match=r"none\.jpg"):
        list(inputs.stream([torch.tensor([2])], None))


def test_new_images_come_from_a_folder_or_a_list(folder):
    (folder / "7.jpg").write_text("not an image")
    encoder = encoder_from_json(json.loads(json.dumps(ImageEncoder(Decoder(16)).to_json())))
    inputs, usable = encoder.read(folder)
    assert usable.tolist() == [True] * 7 + [False]
    assert inputs[torch.arange(8)].shape == (8, 3, 16, 16)
    (folder / "list.csv").write_text("id,path\na,3.jpg\nb,none.jpg\nc,0.jpg\nd\n")
    listed, usable = encoder.read(folder / "list.csv")
    assert usable.tolist() == [True, False, True, False]
    assert torch.equal(listed[torch.tensor([0, 2])], inputs[torch.tensor([3, 0])])


@pytest.mark.parametrize("zipped", [False, True])
def test_celeba_as_published(tmp_path, zipped):
    source = image_sets.write_celeba(tmp_path / "source", zipped=zipped)
    root = tmp_path / "root"
    assert mmb.data.get("celeba", root, source) == root / "celeba" / "raw"
    mmb.data.get("celeba", root)  # what is there is found again
    data = mmb.data.load("celeba", root, size=32, workers=0)
    assert data.task_names == ("5_o_Clock_Shadow", "Bald", "Smiling")
    assert data.labels[:3].tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert [data.split[part].tolist() for part in ("train", "valid", "test")] == [
        [*range(7)],
        [7],
        [8, 9, 10, 11],
    ]
    assert data.batch(torch.tensor([0, 11])).shape == (2, 3, 32, 32)
    assert not (tmp_path / "outside.jpg").exists()
    assert sorted(p.name for p in (root / "celeba" / "raw").iterdir()) == [
        "img_align_celeba",
        "list_attr_celeba.txt",
        "list_eval_partition.txt",
    ]


def test_celeba_lists_must_agree(tmp_path):
    source = image_sets.write_celeba(tmp_path / "source")
    root = tmp_path / "root"
    partition = source / "Eval" / "list_eval_partition.txt"
    mmb.data.get("celeba", root, source)
    partition.write_text(partition.read_text().replace("000003.jpg", "000030.jpg"))
    with pytest.raises(DamagedDataError, match="same images"):
        mmb.data.load("celeba", root)
    attributes = source / "Anno" / "list_attr_celeba.txt"
    attributes.write_text(attributes.read_text()[:-20])
    with pytest.raises(DamagedDataError, match="12 lines of 3 attributes"):
        mmb.data.load("celeba", root)
    partition.unlink()
    with pytest.raises(MissingDataError, match=r"(?s)list_eval_partition.*mmb data get celeba --from DIR"):
        mmb.data.load("celeba", root)


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
    with pytest.raises(mmb.data.DamagedDataError, match=f"data row 4 has the path '{path}', expected folder"):
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
    with pytest.raises(MissingDataError, match=r"(?s)chexpert.*register at"):
        mmb.data.get("chexpert", tmp_path)
    base = image_sets.write_chexpert(tmp_path / "source")
    mmb.data.get("chexpert", tmp_path, base)
    with pytest.raises(ValueError, match="held_out"):
        mmb.data.load("chexpert", tmp_path)
    with pytest.raises(ValueError, match="uncertain must be"):
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
    with pytest.raises(DamagedDataError, match="cut short or broken"):
        mmb.data.get("chexpert", tmp_path / "other", archive.parent)
    assert not list((tmp_path / "other" / "chexpert" / "raw").iterdir())
