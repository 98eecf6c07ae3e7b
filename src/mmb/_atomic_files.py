"""Files that are complete or absent, whatever happens while they are written."""

import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from filelock import FileLock, Timeout

_MANY = 1000  # files of a folder, from which on the system is asked once to bring all it has to the disk


class WriteError(OSError):
    """A file cannot be written; the message names it and says why."""

    def __str__(self) -> str:
        """The message."""
        return f"cannot write {self.filename}: {self.strerror}"


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Name a file in the errors of the code that writes it: any OSError becomes a `WriteError`."""
    try:
        yield
    except OSError as error:
        raise WriteError(error.errno, error.strerror or str(error), str(path)) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write a file so that a reader, or a crash, finds the old content or the new, never a part.

    The content goes to a temporary file next to it, reaches the disk, and is renamed in one step. Where
    the path is a link, the file it leads to is replaced. A device or a pipe is written directly. If the
    content cannot be written, for example because the disk is full, the old one stays.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file to write")
    if path.exists() and not path.is_file():
        with writing(path):
            yield path
        return
    target = path.resolve()
    with temporary_beside(target) as temporary, writing(path):
        yield temporary
        sync(temporary)
        os.replace(temporary, target)
    sync(target.parent)


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """Open a text file for writing; it is replaced as a whole, as by `replacing`, when it is closed."""
    with replacing(path) as place, open(place, "w", encoding="utf-8", newline="") as file:
        yield file


def write_whole(path: Path, text: str) -> None:
    """Write a text file as a whole; see `replacing`."""
    with whole_file(path) as file:
        file.write(text)


def write_new(path: Path, text: str) -> None:
    """Write a text file as a whole; FileExistsError if it exists, so that of many processes one succeeds."""
    with temporary_beside(path) as temporary:
        with writing(path):
            temporary.write_text(text, encoding="utf-8", newline="")
            sync(temporary)
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            path.touch(exist_ok=False)
            os.replace(temporary, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    folder = path.is_dir()
    with writing(path):
        try:
            descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
        except PermissionError:
            if folder:  # which Windows cannot open
                return
            raise
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_all(path: Path) -> None:
    """Wait until a file, or a folder with all that is in it, is on the disk."""
    files = [found for found in path.rglob("*") if found.is_file()] if path.is_dir() else [path]
    if len(files) > _MANY and hasattr(os, "sync"):
        os.sync()
        return
    for file in files:
        sync(file)
    for folder in {file.parent for file in files} if path.is_dir() else ():
        sync(folder)


@contextmanager
def temporary_beside(path: Path) -> Iterator[Path]:
    """A temporary name next to a path, for a file or folder that is to replace it; leftovers are removed.

    No other writer has this name. A lock on a file next to it shows that its writer is alive. What killed
    writers have left here is removed.
    """
    _remove_leftovers(path)
    temporary, lock = _locked_name(path)
    try:
        yield temporary
    finally:
        _remove(temporary)
        lock.release()
        with suppress(OSError):
            os.unlink(lock.lock_file)


def replace_folder(new: Path, path: Path) -> None:
    """Replace a folder by another one; the old one stays if that fails."""
    if not path.exists():
        os.replace(new, path)
    else:
        with temporary_beside(path) as old:
            os.replace(path, old)
            try:
                os.replace(new, path)
            except OSError:
                os.replace(old, path)
                raise
    sync(path.parent)


def _locked_name(path: Path) -> tuple[Path, FileLock]:
    while True:
        temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.part")
        lock = FileLock(f"{temporary}.lock")
        if not path.parent.is_dir():  # locking would make it
            return temporary, lock
        try:
            lock.acquire(blocking=False)
        except Timeout:  # taken for a leftover while it was made
            continue
        except (OSError, NotImplementedError):  # without locks, leftovers stay
            pass
        return temporary, lock


def _remove_leftovers(path: Path) -> None:
    """Remove what killed writers of a path have left."""
    for found in path.parent.glob(f".{glob.escape(path.name[:40])}.*.part*"):
        temporary = found.with_name(found.name.removesuffix(".lock"))
        lock = FileLock(f"{temporary}.lock")
        with suppress(OSError, NotImplementedError), lock.acquire(blocking=False):
            _remove(temporary)
        if not temporary.exists():
            with suppress(OSError):
                os.unlink(lock.lock_file)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
