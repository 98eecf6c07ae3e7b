"""A prepared data set on disk: plain `.npy` arrays and a JSON manifest, written whole or not at all."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    """Write NumPy arrays and facts (plain JSON) as a cache folder; a damaged one in its place is replaced.

    In place of an array that is too large for memory, a function may write it to the `.npy` path it is given.
    The folder appears whole: a reader never sees half a cache, and of two processes that prepare the same
    data set one wins.
    """
    np = require("numpy", extra=_EXTRA)
    try:
        with atomic_path(folder) as temporary:
            temporary.mkdir()
            listed = {}
            for name, array in arrays.items():
                path = temporary / f"{name}.npy"
                if callable(array):
                    array(path)
                else:
                    np.save(path, array, allow_pickle=False)
                listed[name] = {"bytes": path.stat().st_size, "sha256": checksum_of(path)}
            manifest = {"version": VERSION, "arrays": listed, "facts": dict(facts)}
            (temporary / _MANIFEST).write_text(json.dumps(with_checksum(manifest), indent=1))
            if folder.exists() and not is_intact(folder):
                shutil.rmtree(folder)
    except OSError:
        if not is_intact(folder):
            raise
    return folder


def is_intact(folder: Path) -> bool:
    """Whether a cache of this version is there and every checksum is right (reads all of it).

    OSError if it cannot be read, for lack of permission and the like: that is no damage.
    """
    try:
        listed = _manifest(folder)["arrays"]
        return all(checksum_of(folder / f"{name}.npy") == listed[name]["sha256"] for name in listed)
    except (DamagedDataError, OSError) as error:
        if is_no_damage(error):
            raise
        return False


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
