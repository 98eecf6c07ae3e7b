"""What a compiler made for a step, kept in the data folder for the next process that takes the same step.

Torch keeps compiled kernels itself, but for all programs in one temporary folder, which is gone after the
machine's next start, and under names that leave out some of what they depend on, such as the Python behind an
operator. Here every step has a folder of its own, named after all versions and shapes.
"""

import hashlib
import inspect
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from torch import nn

import mmb
from mmb._atomic_files import write_whole
from mmb._checksums import with_checksum, without_checksum
from mmb.data.registry import default_root

_PLACES = {"TORCHINDUCTOR_CACHE_DIR": "torch", "TRITON_CACHE_DIR": "triton"}
_LIST = "checksums.json"
_WHOLE = "whole"  # a file that is there when nothing is left to compile
_WAIT = 300.0  # seconds at most, for another process that compiles the same step
_UNUSED = 30 * 24 * 3600.0  # seconds after which a folder is removed


@contextmanager
def kept_kernels(name: str, root: Path | None = None) -> Iterator[Path | None]:
    """Keep what is compiled inside of this block, and find there what was kept before.

    Of several processes that compile the same step, one does and the others wait for it. Files that are
    damaged, or were left by a process that was killed, are removed first. Whatever is wrong with the folder,
    kernels are compiled all the same: then, and if one of the variables is set that name another place, torch
    keeps them where it always does.

    Args:
        name: Of the step, by `step_name`.
        root: The data folder; `mmb.data.default_root` by default.

    Yields:
        The folder, or None if it cannot be used.
    """
    folder = (root or default_root()) / "compiled" / name
    before = {place: os.environ.get(place) for place in _PLACES}
    lock = None if any(map(_is_chosen, before.values())) else _enter(folder)
    if lock is None:
        yield None
        return
    try:
        os.environ.update({place: str(folder / part) for place, part in _PLACES.items()})
        yield folder
        with suppress(OSError):
            (folder / _WHOLE).touch()
    finally:
        for place, value in before.items():
            os.environ.pop(place, None)
            if value is not None:
                os.environ[place] = value
        with suppress(OSError):
            _write_list(folder)
        lock.release()


def is_kept(name: str, root: Path | None = None) -> bool:
    """Whether all that a step compiles is kept: a `kept_kernels` of this name has ended without an error."""
    return ((root or default_root()) / "compiled" / name / _WHOLE).exists()


def step_name(modules: Iterable[nn.Module], *facts: object) -> str:
    """A name that differs for other networks, shapes, settings, facts, versions of any code, and hardware.

    Args:
        modules: The network and the objective: of their tensors, names and shapes count, not values.
        facts: Whatever else the compiled kernels depend on; plain data, or objects whose `repr` says all.
    """
    parts = list(modules)
    shapes = [
        (key, str(value.shape), str(value.dtype))
        for part in parts
        for key, value in part.state_dict().items()
    ]
    inside = [module for part in parts for module in part.modules()]
    own = sorted(_own_source(kind) for kind in {type(module) for module in inside})
    settings = list(map(_settings, inside))
    text = json.dumps([_versions(), own, list(map(repr, parts)), shapes, settings, list(map(repr, facts))])
    return f"torch-{torch.__version__}-{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def _settings(module: nn.Module) -> list[tuple[str, str]]:
    """Numbers and words among the attributes of a module, which a compiler takes as constants."""
    given = ((name, value) for name, value in vars(module).items() if not name.startswith("_"))
    return sorted((name, repr(value)) for name, value in given if isinstance(value, (int, float, str)))


@cache
def _versions() -> list[str]:
    """Versions of all code, and the hardware, that compiled kernels depend on."""
    found = [torch.__version__, str(torch.version.cuda), sys.version, platform.platform(), _processor()]
    if torch.cuda.is_available():
        found.append(str(torch.cuda.get_device_properties(torch.cuda.current_device())))
    with suppress(metadata.PackageNotFoundError):
        found.append(metadata.version("triton"))
    source = hashlib.sha256()
    for path in sorted(Path(mmb.__file__).parent.rglob("*.py")):
        source.update(path.read_bytes())
    return [*found, source.hexdigest()]


def _processor() -> str:
    """What a compiler for this very processor looks at."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return platform.processor()


def _own_source(kind: type) -> str:
    """The code around a module's class, unless its version says all: that of an own network may change."""
    if kind.__module__.partition(".")[0] in ("torch", "mmb"):
        return ""
    try:
        return inspect.getsource(inspect.getmodule(kind) or kind)
    except (OSError, TypeError):
        return ""


def _is_chosen(place: str | None) -> bool:
    """Whether the user has named a place; torch sets the variables to its own folder when it is imported."""
    return place is not None and not place.startswith(str(Path(tempfile.gettempdir(), "torchinductor_")))


def _enter(folder: Path) -> FileLock | None:
    """Lock a folder, and remove what cannot be trusted; None if that does not work."""
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
            return None  # what is kept is code: that of others is not run
        lock.acquire(timeout=_WAIT)
    except (OSError, NotImplementedError, Timeout):
        return None
    try:
        _remove_unlisted(folder)
        _write_list(folder)  # so that the folder counts as used
        _remove_unused(folder.parent)
    except OSError:
        lock.release()
        return None
    return lock


def _remove_unlisted(folder: Path) -> None:
    """Remove every file that is not what the list says, after which the rest is not all."""
    try:
        listed = without_checksum(json.loads((folder / _LIST).read_text()))
    except (OSError, ValueError):
        listed = {}
    found = _checksums(folder)
    if found != listed:
        (folder / _WHOLE).unlink(missing_ok=True)
    for name, digest in found.items():
        if listed.get(name) != digest:
            (folder / name).unlink(missing_ok=True)


def _write_list(folder: Path) -> None:
    write_whole(folder / _LIST, json.dumps(with_checksum(_checksums(folder))))


def _checksums(folder: Path) -> dict[str, str]:
    """Checksums of all files but the list, by name."""
    files = (path for path in folder.rglob("*") if path.name != _LIST and not path.is_dir())
    return {path.relative_to(folder).as_posix(): _digest(path) for path in sorted(files)}


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove_unused(folder: Path) -> None:
    """Remove folders of other steps that nothing has used for long."""
    for path in folder.glob(f"*/{_LIST}"):
        if path.stat().st_mtime < time.time() - _UNUSED:
            lock = FileLock(path.parent.with_name(f"{path.parent.name}.lock"))
            with suppress(Timeout), lock.acquire(blocking=False):
                shutil.rmtree(path.parent, ignore_errors=True)
