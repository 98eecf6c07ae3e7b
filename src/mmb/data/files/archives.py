"""Reading archives without trusting them: checksums, one member at a time, nothing unpacked by its name."""

import gzip
import hashlib
import lzma
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from mmb._atomic_files import sync, sync_all, temporary_beside, write_whole
from mmb.data.errors import DamagedDataError

SUMS = "SHA256SUMS"
"""The file in an unpacked folder that lists the checksums of the others, as `sha256sum` does."""
_NAMES = {"md5": "MD5", "sha256": "SHA-256"}
_AGAIN = "remove it and get the data set again"
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)


def checksum_of(path: Path, algorithm: str = "sha256") -> str:
    """Checksum of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def verify(path: Path, checksum: str) -> Path:
    """Return `path` if it has this checksum: a SHA-256, or an MD5 if its publisher gives only that."""
    algorithm = "md5" if len(checksum) == 32 else "sha256"
    found = checksum_of(path, algorithm)
    if found != checksum:
        raise DamagedDataError(path, f"its {_NAMES[algorithm]} is {found}, expected {checksum}", _AGAIN)
    return path


def write_sums(folder: Path, sums: Mapping[str, str]) -> None:
    """List the SHA-256 of a folder's files, by name, in it."""
    write_whole(folder / SUMS, "".join(f"{sha256}  {name}\n" for name, sha256 in sums.items()))


def verify_sums(folder: Path) -> bool:
    """Compare the files of an unpacked folder with its list of checksums; False if it has none."""
    if not (folder / SUMS).exists():
        return False
    for line in (folder / SUMS).read_text(encoding="utf-8").splitlines():
        sha256, _, name = line.partition("  ")
        if not (folder / name).is_file():
            raise DamagedDataError(folder, f"it has no file {name!r}, which its {SUMS} lists", _AGAIN)
        verify(folder / name, sha256)
    return True


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """A temporary path, of a file or folder: it becomes `target` if the block succeeds, else is removed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with temporary_beside(target) as temporary:
        yield temporary
        sync_all(temporary)
        temporary.replace(target)
    sync(target.parent)


def copy_file(path: Path, target: Path) -> None:
    """Copy a file to `target`, which appears whole or not at all; a `.gz` for another name is expanded."""
    with atomic_path(target) as temporary, path.open("rb") as content:
        _copy(content, temporary, path, expand=path.suffix == ".gz" and target.suffix != ".gz")


def copy_member(archive: Path, member: str, target: Path, sha256: str | None = None) -> Path:
    """Copy one regular file of a zip or tar archive to `target`, which appears whole or not at all.

    Names inside the archive are only compared, never used as paths, so nothing is written elsewhere. If a
    checksum is given, the content must have it. A `.gz` for another name is expanded.
    """
    with atomic_path(target) as temporary:
        with _open_member(archive, member) as content:
            _copy(content, temporary, archive, expand=member.endswith(".gz") and target.suffix != ".gz")
        if sha256 is not None and (found := checksum_of(temporary)) != sha256:
            problem = f"its member {member} has SHA-256 {found}, expected {sha256}"
            raise DamagedDataError(archive, problem, _AGAIN)
    return target


def _copy(content: IO[bytes], target: Path, origin: Path, expand: bool) -> None:
    """Write a stream to a file, which is gzipped if it is to be expanded."""
    with _reading(origin), target.open("wb") as out, gzip.GzipFile(fileobj=content) as expanded:
        shutil.copyfileobj(expanded if expand else content, out, 1 << 20)


@contextmanager
def _open_member(archive: Path, member: str) -> Iterator[IO[bytes]]:
    """Open one regular file of a zip or tar archive for reading."""
    with _reading(archive):
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as bundle:
                if member not in bundle.namelist():
                    raise _lacking(archive, member)
                with bundle.open(member) as content:
                    yield content
            return
        # Read as a stream: a gzipped archive has no index, and earlier members need not be kept.
        with tarfile.open(archive, "r|*") as tar:
            entry = next((entry for entry in tar if entry.name == member and entry.isfile()), None)
            stream = None if entry is None else tar.extractfile(entry)
            if stream is None:
                raise _lacking(archive, member)
            yield stream


def read_members(archive: Path, members: Collection[str]) -> dict[str, bytes]:
    """Contents of several regular files of a tar archive, in one pass."""
    with _reading(archive), tarfile.open(archive, "r|*") as tar:
        wanted = ((e, tar.extractfile(e)) for e in tar if e.name in members and e.isfile())
        contents = {entry.name: stream.read() for entry, stream in wanted if stream is not None}
    for member in members:
        if member not in contents:
            raise _lacking(archive, member)
    return contents


def unpack_zip(archive: Path, top: str, pattern: str, folder: Path) -> None:
    """Unpack the files `top/...` of a zip archive into `folder`, which appears whole or not at all.

    The folder gets a list of their checksums. What follows `top/` must match `pattern` as a whole; the
    pattern must not match a path that climbs.
    """
    wanted = re.compile(f"{re.escape(top)}/({pattern})")
    with atomic_path(folder) as temporary, _reading(archive), zipfile.ZipFile(archive) as bundle:
        names = [name for name in bundle.namelist() if wanted.fullmatch(name)]
        if not names:
            raise _lacking(archive, wanted.pattern)
        sums = {}
        for name in names:
            own = name.removeprefix(f"{top}/")
            target = temporary / own
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content := bundle.read(name))
            sums[own] = hashlib.sha256(content).hexdigest()
        write_sums(temporary, sums)


@contextmanager
def _reading(archive: Path) -> Iterator[None]:
    """Report an archive that is cut short or broken as damaged."""
    try:
        yield
    except _BROKEN as error:
        raise DamagedDataError(archive, f"it is cut short or broken ({error})", _AGAIN) from error


def _lacking(archive: Path, member: str) -> DamagedDataError:
    return DamagedDataError(archive, f"it has no file {member!r} in it", _AGAIN)
