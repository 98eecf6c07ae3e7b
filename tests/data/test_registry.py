import sys
from pathlib import Path

import pytest

import mmb.data


def test_mistyped_names_get_the_nearest():
    with pytest.raises(ValueError, match="'digits'"):
        mmb.data.load("digit")
    with pytest.raises(ValueError, match="'missing_rate'"):
        mmb.data.load("synthetic", missing=0.1)


def test_root_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("MMB_DATA", str(tmp_path))
    assert mmb.data.default_root() == tmp_path
    monkeypatch.delenv("MMB_DATA")
    assert mmb.data.default_root() == Path.home() / ".cache" / "mmb"


def test_sets_without_files_have_nothing_to_get(tmp_path):
    assert mmb.data.get("digits", tmp_path) == mmb.data.prepare("digits", tmp_path) == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_options_are_listed():
    assert "seed" in mmb.data.dataset_options("digits")
    assert "root" not in mmb.data.dataset_options("digits")


def test_root_is_the_folder_of_data_sets_unless_it_is_an_option(tmp_path):
    assert mmb.data.prepare("digits", root=tmp_path) == tmp_path
    assert "root" in mmb.data.dataset_options("images")
    assert "store" not in mmb.data.dataset_options("images")


def test_loader_is_what_load_calls(tmp_path):
    data = mmb.data.loader("synthetic")(tmp_path, rows=30, tasks=2)
    assert (data.inputs == mmb.data.load("synthetic", tmp_path, rows=30, tasks=2).inputs).all()
    with pytest.raises(ValueError, match="'synthetic'"):
        mmb.data.loader("synthetics")


def test_listing_needs_no_extra(monkeypatch):
    for package in ("numpy", "pandas", "sklearn", "sklearn.datasets", "rdkit", "ogb", "PIL"):
        monkeypatch.setitem(sys.modules, package, None)
    assert "digits" in mmb.data.available_datasets()
    with pytest.raises(ImportError, match=r"mmb\[training\]"):
        mmb.data.load("digits")


def test_arguments_passed_on_are_options():
    assert list(mmb.data.dataset_options("own_parts:load_more")) == ["rows", "noise", "seed"]
    assert len(mmb.data.load("own_parts:load_more", rows=90)) == 90
    with pytest.raises(ValueError, match=r"'rowz'.*'rows'"):
        mmb.data.load("own_parts:load_more", rowz=90)


def test_a_module_without_a_name_gets_a_hint():
    with pytest.raises(ValueError, match=r"import path.*my_project\.data:"):
        mmb.data.load("my_project.data")
