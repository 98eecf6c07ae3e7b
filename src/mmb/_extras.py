"""Importing optional packages: if one is missing, the error names the extra that brings it."""

import importlib
from typing import Any


def require(module: str, extra: str) -> Any:
    """Import an optional module such as `"sklearn.datasets"`; if it is missing, name the extra to install."""
    package = module.split(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise  # the package is there, but something it needs is broken: keep the true cause
        raise ImportError(
            f"mmb needs the package {package!r} for this. "
            f'Install the extra that brings it: pip install "mmb[{extra}]"'
        ) from error
