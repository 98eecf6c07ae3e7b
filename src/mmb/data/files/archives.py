"""Reading archives without trusting them: checksums, one member at a time, nothing unpacked by its name."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import re
import shutil
import tarfile
import uuid
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from mmb.data.errors import DamagedDataError

_NAMES = {"md5": "MD5", "sha256": "SHA-256"}
_AGAIN = "remove it and get the data set again"
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    return _digest(path, "sha256")


def verify(path: Path, checksum: str) -> Path:
    """Return `path` if the file has this checksum: a SHA-256, or an MD5 where a publisher gives only that.

    Raises:
        DamagedDataError: If it has another.
    """
    algorithm = "md5" if len(checksum) == 32 else "sha256"
    found = _digest(path, algorithm)
    if found != checksum:
        raise DamagedDataError(path, f"its {_NAMES[algorithm]} is {found}, expected {checksum}", _AGAIN)
    return path


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """A temporary path that becomes `target` if the block succeeds, and is removed if it does not."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def copy_file(path: Path, target: Path) -> Path:
    """Copy a file to `target`, which appears whole or not at all."""
    with atomic_file(target) as temporary:
        shutil.copyfile(path, temporary)
    return target


def copy_member(archive: Path, member: str, target: Path, sha256: str | None = None) -> Path:
    """Copy one member of a tar or zip archive to a file of our own naming.

    Names inside the archive are only compared, never used as paths, so nothing can be written elsewhere.

    Args:
        archive: A `.zip`, `.tar`, `.tar.gz` or `.tgz` file.
        member: Name of a regular file in it.
        target: Where its content goes; it appears whole or not at all.
        sha256: Checksum the content must have, where known.

    Returns:
        `target`.

    Raises:
        DamagedDataError: If the archive is cut short or broken, lacks the member, or the checksum is wrong.
    """
    with atomic_file(target) as temporary:
        with open_member(archive, member) as content, temporary.open("wb") as out:
            _guard(archive, lambda: shutil.copyfileobj(content, out, 1 << 20))
        if sha256 is not None:
            found = sha256_of(temporary)
            if found != sha256:
                raise DamagedDataError(
                    archive, f"its member {member} has SHA-256 {found}, expected {sha256}", _AGAIN
                )
    return target


@contextmanager
def open_member(archive: Path, member: str) -> Iterator[IO[bytes]]:
    """Open one regular file inside a tar or zip archive for reading.

    Raises:
        DamagedDataError: If the archive is broken or has no such file.
    """
    if archive.suffix == ".zip":
        with _guard(archive, lambda: zipfile.ZipFile(archive)) as bundle:
            if member not in bundle.namelist():
                raise _lacking(archive, member)
            with bundle.open(member) as content:
                yield content
        return
    # Read as a stream: a gzipped archive has no index, and members before ours need not be kept.
    with _guard(archive, lambda: tarfile.open(archive, "r|*")) as tar:
        entry = _guard(archive, lambda: next((e for e in tar if e.name == member and e.isfile()), None))
        stream = None if entry is None else tar.extractfile(entry)
        if stream is None:
            raise _lacking(archive, member)
        yield stream


def read_members(archive: Path, members: Collection[str]) -> dict[str, bytes]:
    """Contents of several regular files of a tar archive, in one pass.

    Raises:
        DamagedDataError: If the archive is broken or lacks one of them.
    """

    def read() -> dict[str, bytes]:
        with tarfile.open(archive, "r|*") as tar:
            wanted = ((e, tar.extractfile(e)) for e in tar if e.name in members and e.isfile())
            return {entry.name: stream.read() for entry, stream in wanted if stream is not None}

    contents: dict[str, bytes] = _guard(archive, read)
    for member in members:
        if member not in contents:
            raise _lacking(archive, member)
    return contents


def unpack_zip(archive: Path, top: str, pattern: str, folder: Path) -> Path:
    """Unpack those files of one folder of a zip archive whose names match a pattern.

    Args:
        archive: The archive.
        top: The folder in it.
        pattern: Regular expression for whole names after `top/`; it must not match a path that climbs.
        folder: Where the files go; it appears with all of them or not at all.

    Returns:
        `folder`.

    Raises:
        DamagedDataError: If the archive is broken or no name matches.
    """
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    try:
        temporary.mkdir(parents=True)
        with _guard(archive, lambda: zipfile.ZipFile(archive)) as bundle:
            names = [
                name for name in bundle.namelist() if re.fullmatch(f"{re.escape(top)}/({pattern})", name)
            ]
            if not names:
                raise _lacking(archive, f"{top}/{pattern}")
            for name in names:
                target = temporary / name.removeprefix(f"{top}/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(_guard(archive, partial(bundle.read, name)))
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def expand_gzip(path: Path, target: Path) -> Path:
    """Write the content of a `.gz` file to `target`, whole or not at all.

    Raises:
        DamagedDataError: If the file is cut short or broken.
    """
    with atomic_file(target) as temporary, gzip.open(path) as content, temporary.open("wb") as out:
        _guard(path, lambda: shutil.copyfileobj(content, out, 1 << 20))
    return target


def _guard(archive: Path, action: Callable[[], Any]) -> Any:
    try:
        return action()
    except _BROKEN as error:
        raise DamagedDataError(archive, f"it is cut short or broken ({error})", _AGAIN) from error


def _lacking(archive: Path, member: str) -> DamagedDataError:
    return DamagedDataError(archive, f"it has no file {member!r} in it", _AGAIN)
