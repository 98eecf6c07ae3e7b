"""Files are written whole or not at all, by any number of writers, wherever their path leads."""

import os
import shutil
import threading

import pytest

from mmb._atomic_files import WriteError, replacing, sync, sync_all, whole_file, write_new, write_whole


def test_a_failure_leaves_the_old_content_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    write_whole(path, "old")

    def fail():
        with whole_file(path) as file:
            file.write("new")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_of_one_file_do_not_mix(tmp_path):
    path = tmp_path / "file"
    with whole_file(path) as one, whole_file(path) as other:
        one.write("one" * 1000)
        other.write("other")
    assert path.read_text() == "one" * 1000  # the last that was closed
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "file")
    write_whole(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "elsewhere" / "file").read_text() == "text"


@pytest.mark.skipif(os.name == "nt", reason="no such devices")
def test_devices_and_pipes_are_written_directly(tmp_path):
    with open(os.devnull, "w") as null, replacing(type(tmp_path)(os.devnull)) as place:
        assert os.path.samestat(os.stat(place), os.fstat(null.fileno()))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, "text")
    reader.join()
    assert read == ["text"]
    assert pipe.is_fifo()


def test_a_folder_and_a_missing_folder_are_named(tmp_path):
    with pytest.raises(IsADirectoryError, match="folder"):
        write_whole(tmp_path, "text")
    with pytest.raises(WriteError, match="missing"):
        write_whole(tmp_path / "missing" / "file", "text")


def test_a_new_file_is_not_written_twice(tmp_path):
    write_new(tmp_path / "file", "first")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "file", "second")
    assert (tmp_path / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_cannot_be_opened_is_left_alone(tmp_path, monkeypatch):
    """As on Windows; a file that cannot be opened is an error."""

    def refuse(path, *_):
        raise PermissionError(13, "no", str(path))

    (tmp_path / "file").write_text("text")
    monkeypatch.setattr(os, "open", refuse)
    sync(tmp_path)
    with pytest.raises(WriteError, match="file"):
        sync(tmp_path / "file")


def test_what_killed_writers_left_is_removed_and_what_living_ones_write_is_not(tmp_path):
    path = tmp_path / "out[1].csv"
    with whole_file(path) as file:
        file.write("killed")
        for found in tmp_path.iterdir():  # as a kill leaves it: nothing holds the lock
            shutil.copy(found, found.with_name(found.name.replace(".part", "00.part")))
        assert len(list(tmp_path.iterdir())) == 4
        write_whole(path, "other")
        assert len(list(tmp_path.iterdir())) == 3
        write_whole(tmp_path / "unrelated", "text")
        file.write(" not")
    assert path.read_text() == "killed not"
    assert {found.name for found in tmp_path.iterdir()} == {path.name, "unrelated"}


def test_file_systems_without_locks(tmp_path, monkeypatch):
    def no_locks(*_, **__):
        raise NotImplementedError

    monkeypatch.setattr("filelock.FileLock.acquire", no_locks)
    with pytest.raises(WriteError), whole_file(tmp_path / "no" / "file"):
        pass
    with whole_file(tmp_path / "file") as file:
        file.write("text")
        write_whole(tmp_path / "file", "other")
    assert [found.read_text() for found in tmp_path.iterdir()] == ["text"]


def test_a_folder_is_brought_to_the_disk_with_all_in_it(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("a/1", "a/b/2", "3"):
        (tmp_path / name).touch()
    synced = []
    monkeypatch.setattr("mmb._atomic_files.sync", lambda path: synced.append(path))
    sync_all(tmp_path)
    assert {path.name for path in synced} == {"1", "2", "3", "a", "b", tmp_path.name}
