"""Files that are there whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import os
import tempfile
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
    """Within it, all is about writing one file.

    Raises:
        WriteError: For any OSError.
    """
    try:
        yield
    except OSError as error:
        raise WriteError(error.errno, error.strerror or str(error), str(path)) from error


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """Open a text file for writing so that a reader, or a crash, sees the old content or the new, no part.

    The text goes to a temporary file beside it, reaches the disk, and takes its place by one rename.

    Args:
        path: The file.

    Yields:
        The open file.

    Raises:
        WriteError: If it cannot be written, for example because the disk is full; the old content stays.
        IsADirectoryError: If it is a folder.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file to write")
    temporary = path.with_name(f".{path.name}.part")
    try:
        with writing(path):
            with open(temporary, "w", encoding="utf-8", newline="") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_whole(path: Path, text: str) -> None:
    """Write a text file at once, as `whole_file` does."""
    with whole_file(path) as file:
        file.write(text)


def write_new(path: Path, text: str) -> None:
    """Write a text file at once, which must not be there yet: of many processes, one succeeds.

    Raises:
        FileExistsError: If it is there.
    """
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as own:
        with writing(path):
            write_whole(Path(own) / path.name, text)
        try:
            os.link(Path(own) / path.name, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            path.touch(exist_ok=False)
            os.replace(Path(own) / path.name, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    with writing(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
