import importlib

import pytest
import torch

import mmb.data
from mmb.data import DamagedDataError, MissingDataError

pytest.importorskip("PIL")
image_sets = importlib.import_module("data.image_sets")


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
    with pytest.raises(DamagedDataError, match="list_eval_partition"):
        mmb.data.load("celeba", root)
    attributes = source / "Anno" / "list_attr_celeba.txt"
    attributes.write_text(attributes.read_text()[:-20])
    with pytest.raises(DamagedDataError, match=r"12.* 3 "):
        mmb.data.load("celeba", root)
    partition.unlink()
    with pytest.raises(MissingDataError, match=r"(?s)list_eval_partition.*mmb data get celeba --from DIR"):
        mmb.data.load("celeba", root)


def test_unpacked_images_are_verified_again(tmp_path):
    source = image_sets.write_celeba(tmp_path / "source", zipped=True)
    root = tmp_path / "root"
    mmb.data.get("celeba", root, source)
    assert mmb.data.get("celeba", root, source) == mmb.data.get("celeba", root)
    image = root / "celeba" / "raw" / "img_align_celeba" / "000002.jpg"
    content = bytearray(image.read_bytes())
    content[len(content) // 2] ^= 1
    image.write_bytes(content)
    with pytest.raises(DamagedDataError, match=r"000002\.jpg.*SHA-256"):
        mmb.data.get("celeba", root)
    image.unlink()
    with pytest.raises(DamagedDataError, match=r"000002\.jpg.*SHA256SUMS"):
        mmb.data.get("celeba", root)
