"""Importing what is optional: a missing package is reported with the extra that brings it."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, extra: str) -> Any:
    """Import an optional module, or say which extra to install.

    Args:
        module: Name of the module to import, for example `"sklearn.datasets"`.
        extra: The optional extra of this package that installs it, for example `"training"`.

    Returns:
        The imported module.

    Raises:
        ImportError: If the module is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise  # the module is there, but something it needs is broken: keep the true cause
        raise ImportError(
            f"mmb needs the package {module.split('.')[0]!r} for this. "
            f'Install the extra that brings it: pip install "mmb[{extra}]"'
        ) from error
