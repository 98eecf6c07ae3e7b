"""Objects by import path, `package.module:name`: the parts that a recipe takes from a user's own code."""

import hashlib
import importlib
import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Any


def is_import_path(name: str) -> bool:
    """Whether a name is an import path."""
    return ":" in name


def import_path_hint(name: str) -> str:
    """The end of a message about an unknown name that looks like a module: how to write an import path."""
    return f"; for an object of your own, give its import path, `{name}:NAME`" if "." in name else ""


def from_import_path(path: str) -> Any:
    """The object at an import path; modules are also looked for in the current folder.

    Raises:
        ValueError: If there is no such module or object; the message says what was looked for, and where.
    """
    module, _, name = path.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # last, so that it shadows nothing
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{path!r} cannot be imported: {error}; install its package, or start from the folder it is in "
            f"(now {here}), or add that folder to PYTHONPATH"
        ) from error
    except ValueError as error:
        if not module or module.startswith("."):
            raise ValueError(f"{path!r} is not an import path: expected package.module:name") from error
        raise _raised(path, error) from error
    except Exception as error:  # of the module itself
        raise _raised(path, error) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{path!r} cannot be imported: {found.__name__} has no {part!r}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"{path!r} is a {type(found).__name__}: expected a function or a class")
    return found


def _raised(path: str, error: Exception) -> ValueError:
    """The error about a module that raises one when it is imported."""
    return ValueError(f"{path!r} cannot be imported: it raises {type(error).__name__}: {error}")


def version_at(path: str) -> str | None:
    """The version of the package that an import path is in; the checksum of its module if none is stated."""
    module = path.partition(":")[0]
    package = module.partition(".")[0]
    stated = getattr(sys.modules.get(package), "__version__", None)
    try:
        return str(stated) if stated is not None else importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return _source_checksum(module)


def _source_checksum(module: str) -> str | None:
    """The start of the SHA-256 of a module's file, None if it has none."""
    file = getattr(sys.modules.get(module), "__file__", None)
    try:
        return f"sha256:{hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]}" if file else None
    except OSError:
        return None
