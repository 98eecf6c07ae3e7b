import json

import pytest
import torch

import mmb.data
from data.molecule_files import SMILES, table_text
from mmb.data import MissingDataError, TableError
from mmb.data.checks import find_problems
from new_files import read_new

pytest.importorskip("rdkit")
pytest.importorskip("ogb")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "mine.csv"
    lines = table_text(2).splitlines()
    path.write_text("\n".join([*lines[:4], "oops,1,0", *lines[4:]]))
    return path


def test_unreadable_molecules_keep_their_row_but_are_not_used(path, tmp_path):
    for split in ("scaffold", "random"):
        data = mmb.data.load("molecules", tmp_path, path=path, split=split, fractions=(0.6, 0.2, 0.2))
        used = torch.cat([data.split[part] for part in ("train", "valid", "test")])
        assert sorted(used.tolist()) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]
        assert data.details["unusable_rows"] == [3]
        assert len(data) == 11
        assert data.labels[3].tolist() == [1, 0]


def test_scaffolds_are_never_divided(path, tmp_path):
    data = mmb.data.load("molecules", tmp_path, path=path, fractions=(0.6, 0.2, 0.2))
    # Rows 0, 5, 7, 9 have no ring and 1, 2 a benzene ring: the largest scaffolds, so they train.
    assert {0, 1, 2, 5, 7, 9} == {*data.split["train"].tolist()}


def test_a_split_column_decides(tmp_path):
    path = tmp_path / "mine.csv"
    parts = ["train", "valid", "test"]
    rows = [f"{smiles},{row % 2},{parts[row % 3]},id{row}" for row, smiles in enumerate([*SMILES, "oops"])]
    path.write_text("\n".join(["structure,active,part,name", *rows]))
    options = {"path": path, "smiles": "structure", "drop": "name", "split_column": "part"}
    data = mmb.data.load("molecules", tmp_path, features="fingerprint", bits=64, **options)
    assert data.task_names == ("active",)
    assert data.split["valid"].tolist() == [1, 4, 7]  # row 10 is unreadable


def test_new_files_are_encoded_as_the_old(path, tmp_path):
    for options in ({"features": "fingerprint", "bits": 64}, {"features": "graph"}):
        data = mmb.data.load("molecules", tmp_path, path=path, **options)
        encoder = mmb.data.encoder_from_json(json.loads(json.dumps(data.encoder.to_json())))
        inputs, usable = read_new(encoder, path)
        assert usable.tolist() == [row != 3 for row in range(11)]
        rows = torch.arange(11)
        old, new = data.batch(rows), inputs[rows]
        if options["features"] == "graph":
            old, new = old.atoms, new.atoms
        assert torch.equal(old, new)


def test_the_cache_follows_the_file(path, tmp_path):
    options = {"features": "fingerprint", "bits": 64, "path": path}
    first = mmb.data.prepare("molecules", tmp_path, **options)
    assert mmb.data.prepare("molecules", tmp_path, **options) == first
    path.write_text(path.read_text().replace("CCO", "CCCO"))
    assert mmb.data.prepare("molecules", tmp_path, **options) != first


def test_mistakes_are_named(path, tmp_path):
    with pytest.raises(TableError, match="'structure'"):
        mmb.data.load("molecules", tmp_path, path=path, smiles="structure", labels=["task, 0"])
    with pytest.raises(TableError, match="'identifier'"):
        mmb.data.load("molecules", tmp_path, path=path, drop="identifier")
    with pytest.raises(TableError, match="'structure'"):
        mmb.data.load("molecules", tmp_path, path=path, smiles="structure")
    with pytest.raises(ValueError, match="label"):
        mmb.data.load("molecules", tmp_path, path=path, labels=[])
    with pytest.raises(ValueError, match=r"split.*cold"):
        mmb.data.load("molecules", tmp_path, path=path, split="cold")
    with pytest.raises(MissingDataError, match=r"none\.csv"):
        mmb.data.load("molecules", tmp_path, path=tmp_path / "none.csv")
    path.write_text("smiles,a\nCC,maybe\n")
    with pytest.raises(TableError, match=r"'maybe'.* 1"):
        mmb.data.load("molecules", tmp_path, path=path)


@pytest.mark.parametrize(("split", "folds"), [("random", 0), ("stratified", 0), ("random", 3)])
def test_rows_of_the_same_molecule_stay_together(tmp_path, split, folds):
    written = ["OCC", "CCO", "C(O)C", "c1ccccc1O", "Oc1ccccc1", "CCN", "NCC", "CCCl", "ClCC", "C1CC1", "CC"]
    path = tmp_path / "same.csv"
    path.write_text("smiles,y\n" + "".join(f"{text},{k % 2}\n" for k, text in enumerate(written)))
    same = [{0, 1, 2}, {3, 4}, {5, 6}, {7, 8}, {9}, {10}]
    for seed in range(5):
        data = mmb.data.load("molecules", tmp_path, path=path, seed=seed, split=split, folds=folds)
        parts = [{*rows.tolist()} for rows in data.split.values()]
        assert all(any(group <= part for part in parts) for group in same)
        assert all(parts)


def test_columns_that_are_no_labels_are_left_out_unless_they_are_named(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"M{k},{'C' * (k + 1)},{0.1 * k:.1f},{k % 2}" for k in range(20)]
    path.write_text("\n".join(["id,smiles,dose,toxic", *rows]))
    options = {"path": path, "features": "fingerprint", "bits": 64}
    data = mmb.data.load("molecules", tmp_path, **options)
    assert data.task_names == ("toxic",)
    assert list(data.details["left_out"]) == ["id", "dose"]
    assert mmb.data.load("molecules", tmp_path, labels="tox*", **options).details["left_out"] == {}
    with pytest.raises(TableError, match="'id'"):
        mmb.data.load("molecules", tmp_path, labels="id", **options)
    named = mmb.data.load("molecules", tmp_path, labels="toxic", positive="0", **options)
    assert named.labels.flatten().tolist() == [1, 0] * 10
    path.write_text("smiles,toxic\nnot a,1\nmolecule,0\n")
    with pytest.raises(ValueError, match="RDKit cannot read any of the 2"):
        mmb.data.load("molecules", tmp_path, **options)


WRITTEN = ["OCC", "CCO", "c1ccccc1O", "Oc1ccccc1", "CCN", "NCC", "oops", "CCCl", "C1CC1", "CC", "CCC", "CCCC"]
BITS = {"features": "fingerprint", "bits": 64}


def _write(path, rows, **columns):
    """A file with some of the molecules; columns are lists by row."""
    lines = [[WRITTEN[row], str(row % 2), *(str(cells[row]) for cells in columns.values())] for row in rows]
    path.write_text("\n".join(",".join(line) for line in [["smiles", "y", *columns], *lines]) + "\n")
    return path


@pytest.mark.parametrize("seed", range(5))
def test_neither_groups_nor_molecules_are_divided(tmp_path, seed):
    lab = ["a", "b", "b", "c", "d", "e", "a", "f", "g", "h", "i", "j"]  # a, b and c share molecules
    path = _write(tmp_path / "t.csv", range(12), lab=lab)
    options = {"path": path, "seed": seed, "fractions": (0.4, 0.3, 0.3), "group": "lab", **BITS}
    for more in ({}, {"split": "stratified"}, {"folds": 3}):
        data = mmb.data.load("molecules", tmp_path, **options, **more)
        parts = [{*rows.tolist()} for rows in data.split.values()]
        assert all(parts)
        assert set.union(*parts) == {*range(12)} - {6}
        assert all(any(group <= part for part in parts) for group in ({0, 1, 2, 3}, {4, 5}))
        assert data.task_names == ("y",)
    with pytest.raises(TableError, match=r"'laboratory'(.|\n)*data\.group="):
        mmb.data.load("molecules", tmp_path, **(options | {"group": "laboratory"}))


def test_molecules_in_order_of_time(tmp_path):
    year = [2001, 2011, *range(2002, 2012)]  # the first molecule is measured again
    path = _write(tmp_path / "t.csv", range(12), year=year)
    options = {"path": path, "time": "year", "fractions": (0.6, 0.2, 0.2), **BITS}
    data = mmb.data.load("molecules", tmp_path, **options)
    assert data.task_names == ("y",)
    assert data.details["split"] == "time"
    parts = [{*rows.tolist()} for rows in data.split.values()]
    assert {0, 1} <= parts[2]
    assert 2 in parts[0]
    assert max(year[row] for row in parts[0]) < min(year[row] for row in parts[1])


def test_a_file_of_molecules_for_each_part(tmp_path):
    train = _write(tmp_path / "train.csv", [0, 2, 6, 7, 8, 9])
    valid, test = _write(tmp_path / "valid.csv", [4, 6, 1]), _write(tmp_path / "test.csv", [10, 11])
    for features in ("fingerprint", "graph"):
        options = {"path": train, "valid_path": valid, "test_path": test, "features": features}
        data = mmb.data.load("molecules", tmp_path, **options)
        assert [rows.tolist() for rows in data.split.values()] == [[0, 1, 3, 4, 5], [6, 8], [9, 10]]
        assert data.labels[6:].flatten().tolist() == [0, 0, 1, 0, 1]
        problems = find_problems(data, "data.")
        assert any(
            "1 of 2 valid rows have the same" in text and "rows 3 of valid.csv" in text for text in problems
        )
        assert not any("data.group" in text for text in problems)
        prepared = mmb.data.prepare("molecules", tmp_path, **options)
        assert torch.equal(
            mmb.data.load("molecules", tmp_path, **options).split["valid"], data.split["valid"]
        )
        assert prepared.is_dir()
    alone = mmb.data.load("molecules", tmp_path, path=train, test_path=test, fractions=(0.6, 0.4, 0), **BITS)
    assert [len(rows) for rows in alone.split.values()] == [3, 2, 2]
    _write(test, [6])
    with pytest.raises(TableError, match=r"test\.csv.*RDKit"):
        mmb.data.load("molecules", tmp_path, **options)
    with pytest.raises(ValueError, match=r"valid_path.*folds"):
        mmb.data.load("molecules", tmp_path, path=train, valid_path=valid, folds=3, **BITS)


def test_what_prepares_is_what_loads(tmp_path):
    path = _write(tmp_path / "t.csv", range(12), part=["train", "test"] * 6, week=[1] * 12, lab=[0, 1] * 6)
    for options in ({"split_column": "part"}, {"group": "lab"}, {"time": "week"}):
        mmb.data.prepare("molecules", tmp_path, path=path, **options, **BITS)
        before = {*(tmp_path / "molecules").iterdir()}
        mmb.data.load("molecules", tmp_path, path=path, **options, **BITS)
        assert {*(tmp_path / "molecules").iterdir()} == before
