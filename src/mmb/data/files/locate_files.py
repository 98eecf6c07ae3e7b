"""Finding files in a folder, and linking to large ones that stay where they are."""

import os
from collections.abc import Sequence
from pathlib import Path

from mmb.data.errors import DataError, MissingDataError


def find(
    dataset: str, folder: Path, names: Sequence[str], remedy: str, subfolders: Sequence[str] = ()
) -> Path:
    """The first of some names that exists in a folder or in one of its subfolders."""
    places = [folder / subfolder / name for name in names for subfolder in ("", *subfolders)]
    for place in places:
        if place.exists():
            return place
    raise MissingDataError(f"{dataset}: {names[0]}", places, remedy)


def link(path: Path, target: Path) -> None:
    """Make `target` a symbolic link to `path`, in place of an older link, unless they are the same."""
    if target.exists() and target.samefile(path):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink():
        target.unlink()
    try:
        os.symlink(path.resolve(), target)
    except OSError as error:  # Windows allows links only to administrators and in developer mode
        raise DataError(f"cannot link to {path} ({error}); move it to {target} instead") from error
