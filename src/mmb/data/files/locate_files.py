"""Large data sets that stay where they are: files are found in a given folder and linked to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mmb.data.errors import MissingDataError


def find(dataset: str, folder: Path, names: Sequence[str], subfolders: Sequence[str], remedy: str) -> Path:
    """The first file or folder that exists under one of some names in one of some subfolders.

    Args:
        dataset: Name of the data set, for the error.
        folder: Where to look.
        names: Names it may have, the preferred first.
        subfolders: Subfolders of `folder` to look into; `""` is `folder` itself.
        remedy: How to get it, for the error.

    Returns:
        Its path.

    Raises:
        MissingDataError: If there is none; the message lists every place.
    """
    places = [folder / subfolder / name for name in names for subfolder in subfolders]
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
    os.symlink(path.resolve(), target)
