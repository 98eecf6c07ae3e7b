"""A prepared data set on disk: plain `.npy` arrays and a JSON manifest, written whole or not at all."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from mmb._checksums import is_no_damage, with_checksum, without_checksum
from mmb._extras import require
from mmb.data.errors import DamagedDataError
from mmb.data.files.archives import atomic_path, checksum_of

VERSION = 1
"""Raised when the meaning of a stored array changes, so that older caches are built again."""
_MANIFEST = "manifest.json"
_EXTRA = "training"
_CHECKED = 1 << 26  # bytes; checksums of larger arrays are not compared when a cache is opened


def write(folder: Path, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> Path:
    """Write NumPy arrays and facts (plain JSON) as a cache folder; see `writing`.

    In place of an array that is too large for memory, a function may write it to the `.npy` path it is given.
    """
    with writing(folder) as cache:
        for name, array in arrays.items():
            if callable(array):
                array(cache.new_file(name))
            else:
                cache.append(name, array)
        cache.facts.update(facts)
    return folder


class Writer:
    """Arrays that grow by rows, and facts about them, on their way to a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._format = folder, require("numpy", extra=_EXTRA).lib.format
        self._files: dict[str, tuple[IO[bytes], dict[str, Any]]] = {}
        self._listed: list[str] = []
        self.facts: dict[str, Any] = {}  # plain JSON

    def new_file(self, name: str) -> Path:
        """Where an array is to be written as a whole."""
        self._listed.append(name)
        return self._folder / f"{name}.npy"

    def append(self, name: str, rows: Any) -> None:
        """Add rows to an array; all calls for one array have the same dtype and shape of a row."""
        if rows.dtype.hasobject:
            raise ValueError(
                f"{name}: objects would have to be pickled, which a cache does not; got {rows.dtype}"
            )
        if name not in self._files:
            header = {"descr": self._format.dtype_to_descr(rows.dtype), "fortran_order": False}
            header["shape"] = (0, *rows.shape[1:])
            self._files[name] = self.new_file(name).open("wb"), header
            self._format.write_array_header_1_0(self._files[name][0], header)  # with room for more digits
        file, header = self._files[name]
        header["shape"] = (header["shape"][0] + len(rows), *header["shape"][1:])
        np = require("numpy", extra=_EXTRA)
        file.write(np.ascontiguousarray(rows).data.cast("B") if rows.size else b"")

    def close(self) -> None:
        """Write the manifest."""
        for file, header in self._files.values():
            with file:
                file.seek(0)
                self._format.write_array_header_1_0(file, header)
        paths = {name: self._folder / f"{name}.npy" for name in self._listed}
        listed = {
            name: {"bytes": path.stat().st_size, "sha256": checksum_of(path)} for name, path in paths.items()
        }
        manifest = {"version": VERSION, "arrays": listed, "facts": self.facts}
        (self._folder / _MANIFEST).write_text(json.dumps(with_checksum(manifest), indent=1))

    def abandon(self) -> None:
        """Close all files as they are."""
        for file, _ in self._files.values():
            file.close()


@contextmanager
def writing(folder: Path) -> Iterator[Writer]:
    """Write a cache folder, which appears when the block ends; a damaged one in its place is replaced.

    The folder appears whole: a reader never sees half a cache, and of two processes that prepare the same
    data set one wins.
    """
    try:
        with atomic_path(folder) as temporary:
            temporary.mkdir()
            writer = Writer(temporary)
            try:
                yield writer
                writer.close()
            finally:
                writer.abandon()
            if folder.exists() and not is_intact(folder):
                shutil.rmtree(folder)
    except OSError:
        if not is_intact(folder):
            raise


def is_intact(folder: Path) -> bool:
    """Whether a cache of this version is there and every checksum is right (reads all of it).

    OSError if it cannot be read, for lack of permission and the like, which is not damage.
    """
    try:
        listed = _manifest(folder)["arrays"]
        return all(checksum_of(folder / f"{name}.npy") == listed[name]["sha256"] for name in listed)
    except (DamagedDataError, OSError) as error:
        if is_no_damage(error):
            raise
        return False


def checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of each array, by name."""
    return {name: entry["sha256"] for name, entry in _manifest(folder)["arrays"].items()}


def is_there(folder: Path) -> bool:
    """Whether a cache of this version is there (reads the manifest only)."""
    try:
        return bool(_manifest(folder))
    except DamagedDataError:
        return False


def checksum(folder: Path, name: str) -> str:
    """The checksum of an array, as the manifest states it."""
    return str(_manifest(folder)["arrays"][name]["sha256"])


def read(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Open a cache: memory-mapped tensors by name, and the facts.

    Sizes are compared with the manifest, and so are the checksums of all but large arrays (opening stays
    instant); `is_intact` compares all. Writing to a tensor changes the copy in memory, never the file.
    """
    np = require("numpy", extra=_EXTRA)
    manifest = _manifest(folder)
    tensors = {}
    for name, entry in manifest["arrays"].items():
        path = folder / f"{name}.npy"
        size = path.stat().st_size if path.is_file() else None
        if size is None or size != entry["bytes"]:
            raise _damaged(path, f"its size is {size}, expected {entry['bytes']}")
        if size <= _CHECKED and checksum_of(path) != entry.get("sha256"):
            raise _damaged(path, "its checksum differs from the one in the manifest")
        try:
            tensors[name] = torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))
        except (ValueError, EOFError) as error:
            raise _damaged(path, "it is not an array") from error
    return tensors, manifest["facts"]


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / _MANIFEST
    try:
        manifest = without_checksum(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        if is_no_damage(error):
            raise
        raise _damaged(path, str(error)) from error
    version, complete = manifest.get("version"), {"arrays", "facts"} <= manifest.keys()
    if version != VERSION or not complete:
        raise _damaged(path, f"its version is {version!r}, expected {VERSION} with arrays and facts")
    return manifest


def _damaged(path: Path, problem: str) -> DamagedDataError:
    return DamagedDataError(path, problem, f"remove the folder {path.parent} and prepare the data set again")
