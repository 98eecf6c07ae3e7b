"""Checkpoints: complete, written as a whole, checked when read, and never executed.

A checkpoint is a folder `checkpoints/00000120` with the tensors (safetensors), everything else (JSON) and a
manifest with the size and SHA-256 of both. It is written under another name, brought to the disk, read back
against its manifest, and only then renamed; so a folder with a number is whole, unless the disk damaged it
later, which the manifest shows.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mmb._extras import require
from mmb.training.files import sync, write_whole
from mmb.training.state_tree import put_together, take_apart

_TENSORS, _REST, _MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
_UNFINISHED = ".unfinished-"


class CheckpointError(Exception):
    """A checkpoint cannot be written or read; the message says what to do about it."""


def save(folder: Path, step: int, state: dict[str, Any], best_step: int | None = None) -> Path:
    """Write the checkpoint of one step.

    Args:
        folder: Where the checkpoints of a run are.
        step: Steps done.
        state: A nest of dicts, lists and tuples of tensors and plain values.
        best_step: The step of the best checkpoint as of now, to be kept as long as this one.

    Returns:
        The folder of this checkpoint.

    Raises:
        CheckpointError: If it cannot be written, for example because the disk is full; all other
            checkpoints are as they were.
    """
    safetensors = require("safetensors.torch", extra="training")
    path, temporary = folder / f"{step:08d}", folder / f"{_UNFINISHED}{step:08d}"
    tensors, rest = take_apart(state)
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        safetensors.save_file(tensors, temporary / _TENSORS)
        sync(temporary / _TENSORS)
        write_whole(temporary / _REST, rest)
        files = {name: _fingerprint(temporary / name) for name in (_TENSORS, _REST)}
        manifest = {"step": step, "best_step": best_step, "files": files}
        write_whole(temporary / _MANIFEST, json.dumps(manifest, indent=1))
        verify(temporary)
        shutil.rmtree(path, ignore_errors=True)  # of the same step, before a fall back
        temporary.rename(path)
        sync(folder)
    except (OSError, require("safetensors", extra="training").SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"the checkpoint of step {step} could not be written to {folder}: {error}. Earlier "
            f"checkpoints are intact: free some space and continue with `mmb resume {folder.parent}`"
        ) from error
    return path


def verify(path: Path) -> dict[str, Any]:
    """Compare a checkpoint with its manifest, which is returned.

    Raises:
        CheckpointError: If a file is missing or differs from what was written.
    """
    try:
        manifest: dict[str, Any] = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
        for name, written in manifest["files"].items():
            found = _fingerprint(path / name)
            if found != written:
                raise CheckpointError(
                    f"checkpoint {path} is damaged: {name} is {found}, written was {written}"
                )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"checkpoint {path} is damaged: {type(error).__name__}: {error}") from error
    return manifest


def load(path: Path) -> dict[str, Any]:
    """The state in a checkpoint, after `verify`; nothing in it is executed."""
    verify(path)
    tensors = require("safetensors.torch", extra="training").load_file(path / _TENSORS)
    state: dict[str, Any] = put_together(tensors, (path / _REST).read_text(encoding="utf-8"))
    return state


def load_newest(folder: Path, say: Callable[[str], None]) -> dict[str, Any] | None:
    """The state in the newest checkpoint that is whole, or None if none was ever written.

    Args:
        folder: Where the checkpoints of a run are.
        say: Told of every damaged checkpoint that is passed over.

    Raises:
        CheckpointError: If there are checkpoints, but all are damaged.
    """
    for leftover in folder.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    paths = steps(folder)
    for path in reversed(paths):
        try:
            return load(path)
        except CheckpointError as error:
            say(f"{error}; going back to the checkpoint before it")
    if paths:
        raise CheckpointError(f"all {len(paths)} checkpoints in {folder} are damaged; start the run anew")
    return None


def prune(folder: Path, keep: int) -> None:
    """Delete all checkpoints but the newest `keep`, and the best as each of those knew it."""
    paths = steps(folder)
    kept = {path.name for path in paths[-keep:]}
    for path in paths[-keep:]:
        try:
            best = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))["best_step"]
        except (OSError, ValueError, KeyError, TypeError):
            return  # damaged since: which one it needs is not known, so keep all
        if best is not None:
            kept.add(f"{best:08d}")
    for path in paths:
        if path.name not in kept:
            # Renamed first, so that a crash does not leave half of a checkpoint under its name.
            doomed = path.with_name(f"{_UNFINISHED}{path.name}")
            shutil.rmtree(doomed, ignore_errors=True)
            path.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)


def steps(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted((path for path in folder.glob("[0-9]*") if path.name.isdigit()), key=lambda p: int(p.name))


def _fingerprint(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}
