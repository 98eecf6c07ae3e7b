import gzip
import io
import random
import tarfile
import zipfile

import pytest

from mmb.data.errors import DamagedDataError
from mmb.data.files.archives import atomic_path, checksum_of, copy_file, copy_member, verify

CONTENT = bytes(range(256)) * 400


def make_tar(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_one_member_is_copied(tmp_path, kind):
    archive = tmp_path / f"a.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as bundle:
            bundle.writestr("d/x.bin", CONTENT)
    else:
        make_tar(archive, {"d/other": b"no", "d/x.bin": CONTENT})
    target = copy_member(archive, "d/x.bin", tmp_path / "out" / "x.bin")
    assert target.read_bytes() == CONTENT
    with pytest.raises(DamagedDataError, match="d/y"):
        copy_member(archive, "d/y", tmp_path / "y")
    with pytest.raises(DamagedDataError, match=r"SHA-256.*00"):
        copy_member(archive, "d/x.bin", tmp_path / "z", sha256="00")
    assert {p.name for p in tmp_path.iterdir()} == {archive.name, "out"}  # failures leave nothing behind


def test_what_is_gzipped_is_expanded_unless_the_target_is_gzipped_too(tmp_path):
    packed = gzip.compress(CONTENT)
    archive = make_tar(tmp_path / "a.tar.gz", {"x.csv.gz": packed})
    assert copy_member(archive, "x.csv.gz", tmp_path / "x.csv").read_bytes() == CONTENT
    assert copy_member(archive, "x.csv.gz", tmp_path / "x.csv.gz").read_bytes() == packed
    copy_file(tmp_path / "x.csv.gz", tmp_path / "y.csv")
    copy_file(tmp_path / "x.csv.gz", tmp_path / "y.gz")
    assert (tmp_path / "y.csv").read_bytes() == CONTENT
    assert (tmp_path / "y.gz").read_bytes() == packed


def test_nothing_is_written_outside(tmp_path):
    inner = tmp_path / "inner"
    archive = make_tar(tmp_path / "a.tar.gz", {"../evil": b"evil", "x": CONTENT})
    copy_member(archive, "x", inner / "x")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar.gz", "inner"]


def test_a_link_is_not_a_file(tmp_path):
    archive = tmp_path / "a.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        entry = tarfile.TarInfo("x")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(entry)
    with pytest.raises(DamagedDataError, match="'x'"):
        copy_member(archive, "x", tmp_path / "x")


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.95])
def test_an_archive_cut_short_is_reported(tmp_path, share):
    noise = random.Random(0).randbytes(100_000)  # does not compress, so the cut falls inside it
    whole = make_tar(tmp_path / "whole.tar.gz", {"x": noise}).read_bytes()
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(DamagedDataError, match="cut short"):
        copy_member(archive, "x", tmp_path / "x")
    assert not (tmp_path / "x").exists()
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(noise)[: int(share * 100_000)])
    if share:
        with pytest.raises(DamagedDataError, match="cut short"):
            copy_file(packed, tmp_path / "y")
        assert not (tmp_path / "y").exists()


def test_checksums(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert checksum_of(path) == digest
    assert verify(path, digest) == path
    with pytest.raises(DamagedDataError, match="SHA-256"):
        verify(path, "0" * 64)


def test_atomic_files_appear_whole_or_not_at_all(tmp_path):
    target = tmp_path / "t"
    target.write_text("old")
    with pytest.raises(RuntimeError), atomic_path(target) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    with atomic_path(target) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]
