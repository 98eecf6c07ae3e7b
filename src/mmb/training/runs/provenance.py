"""Where a result comes from: versions, commit, machine."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import mmb
from mmb._cores import available_cores


def provenance_of(device: torch.device) -> dict[str, Any]:
    """The device on which a result was computed, versions, and the commit (None outside of a checkout)."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{available_cores()} CPU cores"
    return {
        "device": str(device),
        "device_name": name,
        "versions": {
            "mmb": mmb.__version__,
            "commit": commit(),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def commit() -> str | None:
    """The commit of the package's checkout; or `MMB_COMMIT`, for copies of one."""
    if "MMB_COMMIT" in os.environ:
        return os.environ["MMB_COMMIT"]
    command = ["git", "-C", str(Path(mmb.__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() if found.returncode == 0 else None
