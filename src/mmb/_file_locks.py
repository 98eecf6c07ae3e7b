"""Locks between processes, on every operating system."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


def try_lock(path: Path) -> TextIO | None:
    """Open a file and lock it until it is closed, or its process ends; None if another process has it."""
    file = open(path, "w", encoding="utf-8")  # noqa: SIM115 -- the caller closes it
    try:
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file
