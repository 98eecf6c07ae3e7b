"""Files that are there whole or not at all, whatever happens while they are written."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


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
    """Write a file so that a reader, or a crash, sees the old content or the new, never a part.

    The content goes to a temporary file beside it, reaches the disk, and takes its place by one rename. Where
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
    temporary = _temporary(target)
    try:
        with writing(path):
            yield temporary
            sync(temporary)
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
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
    temporary = _temporary(path)
    try:
        with writing(path):
            write_whole(temporary, text)
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            path.touch(exist_ok=False)
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
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


def _temporary(path: Path) -> Path:
    """A name beside a file that no other writer has."""
    return path.with_name(f".{secrets.token_hex(8)}.part")
