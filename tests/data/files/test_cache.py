import json

import pytest
import torch

from mmb.data.errors import DamagedDataError
from mmb.data.files import cache
from mmb.data.files.archives import checksum_of

np = pytest.importorskip("numpy")


@pytest.fixture
def folder(tmp_path):
    arrays = {"a": np.arange(6, dtype=np.int16).reshape(2, 3), "flags": np.array([True, False])}
    return cache.write(tmp_path / "deep" / "c", arrays, {"tasks": ["t"]})


def test_round_trip(folder):
    tensors, facts = cache.read(folder)
    assert tensors["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tensors["a"].dtype == torch.int16
    assert tensors["flags"].dtype == torch.bool
    assert facts == {"tasks": ["t"]}
    assert [p.name for p in folder.parent.iterdir()] == ["c"]


def test_a_function_may_write_an_array(tmp_path):
    facts = {}

    def write(path):
        facts["written"] = path.name
        np.save(path, np.arange(3))

    folder = cache.write(tmp_path / "c", {"a": write}, facts)
    assert cache.read(folder)[0]["a"].tolist() == [0, 1, 2]
    assert cache.read(folder)[1] == {"written": "a.npy"}
    assert cache.checksum(folder, "a") == checksum_of(folder / "a.npy")


def test_writing_to_a_tensor_leaves_the_file_alone(folder):
    cache.read(folder)[0]["a"].zero_()
    assert cache.is_intact(folder)
    assert cache.read(folder)[0]["a"][1, 2] == 5


def test_arrays_are_plain_npy(folder):
    assert np.load(folder / "a.npy", allow_pickle=False).shape == (2, 3)
    assert json.loads((folder / "manifest.json").read_text())["version"] == cache.VERSION


def test_damage_is_found_and_repaired(folder):
    path = folder / "a.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert cache.is_there(folder)
    assert not cache.is_intact(folder)
    cache.write(folder, {"a": np.ones(3)}, {})
    assert cache.is_intact(folder)
    assert cache.read(folder)[0]["a"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["a.npy", "manifest.json"])
@pytest.mark.parametrize("how", ["cut", "removed", "garbled", "changed"])
def test_damage_that_opening_notices(folder, name, how):
    path = folder / name
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif how == "garbled":  # of the same size
        path.write_bytes(b"x" * path.stat().st_size)
    elif how == "changed":  # still an array, or JSON
        content = path.read_bytes()
        path.write_bytes(content[:-1] + b"?" if name == "a.npy" else content.replace(b"sha256", b"sha512"))
    else:
        path.unlink()
    with pytest.raises(DamagedDataError, match="prepare"):
        cache.read(folder)


@pytest.mark.parametrize("content", ["[1]", "{}", '{"version": 1}', "7"])
def test_a_manifest_that_is_none_is_found_and_repaired(folder, content):
    (folder / "manifest.json").write_text(content)
    assert not cache.is_there(folder)
    assert not cache.is_intact(folder)
    with pytest.raises(DamagedDataError, match="prepare"):
        cache.read(folder)
    cache.write(folder, {"a": np.ones(3)}, {})
    assert cache.is_intact(folder)


def test_another_version_is_not_opened(folder, monkeypatch):
    monkeypatch.setattr(cache, "VERSION", cache.VERSION + 1)
    assert not cache.is_there(folder)
    with pytest.raises(DamagedDataError, match="version"):
        cache.read(folder)


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="pickle"):
        cache.write(tmp_path / "c", {"a": np.array([object()])}, {})
    assert list(tmp_path.iterdir()) == []


def test_of_two_writers_one_wins(folder):
    cache.write(folder, {"a": np.zeros(1)}, {"tasks": ["other"]})
    assert cache.read(folder)[1] == {"tasks": ["t"]}


def test_a_cache_without_permission_is_not_taken_for_damaged(folder, monkeypatch):
    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(cache, "checksum_of", refuse)
    with pytest.raises(PermissionError):
        cache.is_intact(folder)
    monkeypatch.undo()
    monkeypatch.setattr(type(folder), "read_text", refuse)
    for look in (cache.is_intact, cache.is_there, cache.read):
        with pytest.raises(PermissionError):
            look(folder)


def test_changed_facts_are_noticed_and_old_ones_have_no_checksum(folder):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["facts"]["tasks"] = ["other"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(DamagedDataError, match="changed"):
        cache.read(folder)
    del manifest["sha256"]
    path.write_text(json.dumps(manifest))
    assert cache.read(folder)[1] == {"tasks": ["other"]}
