"""Checkpoints: complete, written as a whole, checked when read, and never executed.

A checkpoint is a folder `checkpoints/00000120` with the tensors (safetensors), everything else (JSON) and a
manifest with the size and SHA-256 of both, and with its own checksum. It is written under another name,
brought to the disk, and only then renamed. So a folder with a number is whole, unless the disk damages it
later, which the manifest shows. What cannot be read for lack of permission does not count as damaged.

Many processes write one safetensors file each, and any number of processes can read those. The manifest has
the number of the format. Checkpoints of earlier formats serve to predict, evaluate and export, but not to
continue training.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

import mmb
from mmb._atomic_files import sync, write_whole
from mmb._checksums import is_no_damage, with_checksum, without_checksum
from mmb._extras import require
from mmb.training.processes.group import ONE, Ranks
from mmb.training.runs.run import RunError, command
from mmb.training.runs.state_files import divided, put_together, read_tensors, take_apart, write_tensors

_T = TypeVar("_T")

_REST, _MANIFEST = "state.json", "manifest.json"
_UNFINISHED = ".unfinished-"
_FORMAT = 2
_FIRST = {"format": 1, "version": "0.1.0"}  # not in the manifests of that version


class CheckpointError(Exception):
    """A checkpoint cannot be written or read; the message says what to do about it."""


def save(
    folder: Path, step: int, state: dict[str, Any], best_step: int | None = None, ranks: Ranks = ONE
) -> Path:
    """Write the checkpoint of one step to the folder of a run's checkpoints; all processes must call this.

    The state is a nest of dicts, lists and tuples of tensors and plain values, the same in all processes but
    for the `Piece`s in it. The checkpoint of `best_step`, the best so far, is kept as long as this one.
    """
    path, temporary = folder / f"{step:08d}", folder / f"{_UNFINISHED}{step:08d}"
    tensors, rest = take_apart(state)

    def begin() -> None:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)

    def settle() -> dict[str, Any]:
        share = sorted(temporary.iterdir())[ranks.rank :: ranks.size]
        for file in share:
            sync(file)
        return {file.name: _fingerprint(file) for file in share}

    def conclude() -> None:
        write_whole(temporary / _REST, rest)
        files = {name: found for part in parts for name, found in part.items()}
        files[_REST] = _fingerprint(temporary / _REST)
        manifest = {"format": _FORMAT, "version": mmb.__version__, "step": step, "best_step": best_step}
        manifest["files"] = files
        write_whole(temporary / _MANIFEST, json.dumps(with_checksum(manifest), indent=1))
        shutil.rmtree(path, ignore_errors=True)  # a damaged one of the same step
        temporary.rename(path)
        sync(folder)
        sync(folder.parent)  # where this folder may be new

    try:
        _together(ranks, begin if ranks.is_main else None)
        _together(ranks, partial(write_tensors, temporary, tensors, ranks))
        parts = _together(ranks, settle)
        _together(ranks, conclude if ranks.is_main else None)
    except OSError as error:
        if ranks.is_main:
            shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"the checkpoint of step {step} could not be written to {folder}: {error}. Earlier "
            f"checkpoints are intact: free some space if the disk is full, and continue with "
            f"`{command('resume', folder.parent)}`"
        ) from error
    return path


def _together(ranks: Ranks, work: Callable[[], _T] | None) -> list[_T]:
    """Do something in every process and return the results by rank; if it fails in one, all raise.

    They raise the CheckpointError of a damaged checkpoint, and an OSError in all other cases.
    """
    known = (OSError, CheckpointError, require("safetensors", extra="training").SafetensorError)
    found, problem, damaged = None, None, False
    try:
        found = work() if work is not None else None
    except known as error:
        problem, damaged = str(error), isinstance(error, CheckpointError)
    answers = ranks.gather((found, problem, damaged))
    for _, problem, damaged in answers:
        if problem is not None:
            raise CheckpointError(problem) if damaged else OSError(problem)
    return [found for found, _, _ in answers]  # type: ignore[misc]


def verify(path: Path, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Compare the files of a checkpoint, or some of them, with its manifest, and return the manifest.

    CheckpointError if one is damaged or missing; OSError if one cannot be read.
    """
    try:
        manifest = {**_FIRST, **without_checksum(json.loads((path / _MANIFEST).read_text(encoding="utf-8")))}
        files = manifest["files"]
        for name in files if names is None else names:
            found, written = _fingerprint(path / name), files[name]
            if found != written:
                raise CheckpointError(f"checkpoint {path} is damaged: {name} is {found}, not {written}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if is_no_damage(error):
            raise
        raise CheckpointError(f"checkpoint {path} is damaged: {type(error).__name__}: {error}") from error
    return manifest


def load(path: Path, ranks: Ranks = ONE) -> dict[str, Any]:
    """The state in a checkpoint, after `verify`; nothing in it is executed.

    All processes must call this; each verifies some of the files, and all raise as `verify` does.
    """

    def verify_share() -> dict[str, Any]:
        names = sorted(verify(path, [])["files"])
        return verify(path, names[ranks.rank :: ranks.size])

    manifest, *_ = _together(ranks, verify_share)
    if manifest["format"] > _FORMAT:
        raise CheckpointError(
            f"checkpoint {path} was written by mmb {manifest['version']}, and mmb {mmb.__version__} cannot "
            f"read it: install mmb {manifest['version']} or later"
        )
    rest = (path / _REST).read_text(encoding="utf-8")
    state: dict[str, Any] = put_together(read_tensors(path, divided(rest)), rest)
    return state if manifest["format"] == _FORMAT else _from_format_1(state)


def _from_format_1(state: dict[str, Any]) -> dict[str, Any]:
    """A state of version 0.1.0, in which some block state had other names."""
    objective = {
        re.sub(r"^share$", "current_share", re.sub(r"\bthreshold\.", "tracked.", name)): value
        for name, value in state["job"]["objective"].items()
    }
    if (points := objective.pop("tracked.operating", None)) is not None:
        known = [points, points, 0 * points, 0 * points + 1e6]  # negatives were seen, but not counted
        objective["tracked.operating_points.state"] = torch.stack(known, 1)
    return {**state, "job": {**state["job"], "objective": objective}}


def load_selected(path: Path, ranks: Ranks = ONE) -> dict[str, Any]:
    """`load` for the checkpoint of a run's selected weights; an error says how to make it again."""
    try:
        return load(path, ranks)
    except CheckpointError as error:
        folder, run = path.parent, path.parent.parent
        raise CheckpointError(
            f"{error}. It has the selected weights: to train them again, move {folder} and "
            f"{run / 'result.json'} elsewhere, and run `{command('resume', run)}`"
        ) from error


def load_newest(folder: Path, say: Callable[[str], None], ranks: Ranks = ONE) -> dict[str, Any] | None:
    """The state in the newest checkpoint that is whole, or None if there are no checkpoints.

    All processes must call this. `say` is called with a message for every damaged checkpoint that is skipped.
    OSError if one cannot be read: to go back to the one before it, or to start again, would lose what may be
    good.
    """
    if ranks.is_main:
        for leftover in folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(leftover, ignore_errors=True)
    paths, *_ = _together(ranks, lambda: steps(folder) if ranks.is_main else [])
    for path in reversed(paths):
        try:
            manifest = verify(path, [])
            if manifest["format"] == _FORMAT:
                return load(path, ranks)
        except CheckpointError as error:
            say(f"{error}; going back to the checkpoint before it")
            continue
        run, version = folder.parent, manifest["version"]
        again = command("train", run / "recipe.yaml", "--output", "FOLDER")
        raise RunError(
            f"the run in {run} was started by mmb {version}; mmb {mmb.__version__} cannot continue it "
            f"exactly: finish it with mmb {version}, or train it again with `{again}`"
        )
    if paths:
        raise CheckpointError(f"all {len(paths)} checkpoints in {folder} are damaged: start another run")
    return None


def prune(folder: Path, keep: int, step: int) -> None:
    """Of checkpoints up to a step, delete all but the newest `keep` and the best as each of those knew it.

    Later ones were damaged, and skipped when the run was resumed; they are written again in time.
    """
    paths = [path for path in steps(folder) if int(path.name) <= step]
    kept = {path.name for path in paths[-keep:]}
    for path in paths[-keep:]:
        try:
            best = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))["best_step"]
        except (OSError, ValueError, KeyError, TypeError):
            return  # damaged: which one it needs is not known, so keep all
        if best is not None:
            kept.add(f"{best:08d}")
    _delete(path for path in paths if path.name not in kept)


def keep_only(folder: Path, step: int) -> None:
    """Delete all checkpoints but one."""
    _delete(path for path in steps(folder) if int(path.name) != step)


def _delete(paths: Iterable[Path]) -> None:
    """Delete checkpoints; each is renamed first, so that a crash leaves no half of one under its name."""
    for path in paths:
        doomed = path.with_name(f"{_UNFINISHED}{path.name}")
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def steps(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first; none if there is no folder, OSError if it cannot be read."""
    with suppress(FileNotFoundError):
        return sorted((folder / name for name in os.listdir(folder) if name.isdigit()), key=_step)
    return []


def _step(path: Path) -> int:
    return int(path.name)


def _fingerprint(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}
