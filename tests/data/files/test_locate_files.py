import os

import pytest

from mmb.data import DataError, MissingDataError
from mmb.data.files.locate_files import find, link


def test_the_first_name_that_exists_is_found(tmp_path):
    (tmp_path / "Img").mkdir()
    (tmp_path / "Img" / "b").touch()
    assert find("set", tmp_path, ["a", "b"], "do this", ["Anno", "Img"]) == tmp_path / "Img" / "b"
    (tmp_path / "a").touch()
    assert find("set", tmp_path, ["a", "b"], "do this", ["Anno", "Img"]) == tmp_path / "a"


def test_a_missing_file_is_reported_with_every_place(tmp_path):
    with pytest.raises(MissingDataError) as caught:
        find("set", tmp_path, ["a"], "do this", ["Img"])
    for text in ("set: a", str(tmp_path / "a"), str(tmp_path / "Img" / "a"), "do this"):
        assert text in str(caught.value)


def test_a_link_replaces_an_older_one(tmp_path):
    for name in ("old", "new"):
        (tmp_path / name).write_text(name)
        link(tmp_path / name, tmp_path / "deep" / "link")
        assert (tmp_path / "deep" / "link").read_text() == name
    link(tmp_path / "new", tmp_path / "new")  # already there
    assert not (tmp_path / "new").is_symlink()


def test_without_links_the_error_says_where_to_put_the_files(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("privilege not held")

    monkeypatch.setattr(os, "symlink", refuse)
    with pytest.raises(DataError, match=r"privilege.*target"):
        link(tmp_path, tmp_path / "target")
