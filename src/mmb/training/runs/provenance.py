"""Where a result comes from: the device, versions, the commit."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import mmb
from mmb._cores import available_cores
from mmb.training.recipes.recipe import Recipe
from mmb.training.runs.own_versions import own_versions


def provenance_of(device: torch.device, recipe: Recipe) -> dict[str, Any]:
    """The device on which a result was computed, versions, and the commit (None outside of a checkout).

    Versions include those of the user's own parts, by import path: of the package, or the checksum of a
    module whose package states none.
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{available_cores()} CPU cores"
    return {
        "device": str(device),
        "device_name": name,
        "versions": {
            "mmb": mmb.__version__,
            "commit": commit(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            **own_versions(recipe),
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
