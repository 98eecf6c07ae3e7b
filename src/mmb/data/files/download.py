"""Downloading files: from an address, from the Python package index, from the npm registry."""

import logging
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mmb.data.errors import DataError, MissingDataError
from mmb.data.files.archives import atomic_path, copy_file, verify

CONNECT_SECONDS = 10.0
"""How long a server may take to answer before the next source is tried."""
COMMAND_SECONDS = 900.0
_log = logging.getLogger(__name__)


def from_first(what: str, sources: Mapping[str, Callable[[], object]], remedy: str) -> None:
    """Try some sources, functions by name, until one succeeds; if none does, report why each failed."""
    failures = []
    for source, bring in sources.items():
        try:
            bring()
            return
        except DataError as error:
            failures.append(f"{source} ({error})")
            _log.warning("%s is not available from %s", what, failures[-1])
    raise MissingDataError(what, failures, remedy)


def from_address(url: str, target: Path, checksum: str | None = None) -> None:
    """Download an `http(s)` address to a file that appears whole, and with its checksum, or not at all."""
    try:
        with urllib.request.urlopen(url, timeout=CONNECT_SECONDS) as answer, atomic_path(target) as temporary:
            with temporary.open("wb") as out:
                shutil.copyfileobj(answer, out, 1 << 20)
            size, expected = temporary.stat().st_size, answer.headers.get("Content-Length")
            if expected is not None and size != int(expected):
                raise DataError(f"{url}: the connection ended after {size} of {expected} bytes")
            if checksum is not None:
                verify(temporary, checksum)
    except (urllib.error.URLError, OSError) as error:
        raise DataError(f"{url}: {error}") from error


def from_pypi(requirement: str, sha256: str, target: Path) -> None:
    """Download the source distribution of `name==version` with pip, as this installation is configured to.

    pip asks a source distribution for its metadata, which runs the distribution's build configuration. pip is
    given the checksum, which it compares before that, so only the known file is ever run.
    """
    name = requirement.split("==")[0]
    with tempfile.TemporaryDirectory() as folder:
        pinned = Path(folder, "requirements.txt")
        pinned.write_text(f"{requirement} --hash=sha256:{sha256}\n")
        files = Path(folder, "files")
        flags = ["--no-deps", "--no-binary", name, "--ignore-requires-python", "--require-hashes"]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        _command([*pip, *flags, "--dest", str(files), "--requirement", str(pinned)], folder)
        (found,) = files.iterdir()
        copy_file(verify(found, sha256), target)


def from_npm(package: str, sha256: str, target: Path) -> None:
    """Download the archive of `name@version` from the npm registry with `npm pack`; none of it is run."""
    npm = shutil.which("npm") or "npm"  # on Windows, a script that is not found by its bare name
    with tempfile.TemporaryDirectory() as folder:
        _command([npm, "pack", "--silent", "--ignore-scripts", package], folder)
        (found,) = Path(folder).iterdir()
        copy_file(verify(found, sha256), target)


def _command(command: Sequence[str], folder: str) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"{' '.join(command[:4])}: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-500:]
        raise DataError(f"{' '.join(command[:4])} failed: {said}")
