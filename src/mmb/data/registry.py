"""The data sets by name: how each is downloaded, prepared and loaded."""

import importlib
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from mmb._import_paths import from_import_path, import_path_hint, is_import_path
from mmb._names import nearest
from mmb._signatures import arguments_of, check_options
from mmb.data.dataset import Dataset, Progress

# Each is a module of `mmb.data.sets`, imported when first used: most need an optional extra.
_NAMES = (
    *("digits", "synthetic", "table", "images"),
    *("molecules", "molpcba", "tox21", "toxcast", "muv", "sider", "hiv", "bbbp", "clintox"),
    *("cifar10", "cifar100", "celeba", "chexpert"),
)
ALIASES = {"csv": "table"}
"""Earlier names of data sets."""


def default_root() -> Path:
    """Where data sets are kept: `$MMB_DATA`, or `~/.cache/mmb`."""
    return Path(os.environ.get("MMB_DATA") or Path.home() / ".cache" / "mmb").expanduser()


def available_datasets() -> dict[str, str]:
    """Names of all data sets, with the first line of what each says about itself."""
    return {name: about(name).splitlines()[0] for name in _NAMES}


def about(name: str) -> str:
    """Where a data set comes from, how it is split, what it contains."""
    source = from_import_path(name) if is_import_path(name) else _module(name)
    return inspect.cleandoc(source.__doc__ or name)


def dataset_options(name: str, action: str = "load") -> dict[str, inspect.Parameter]:
    """Options of `load` (or of `"get"` or `"prepare"`) for one data set, other than its root."""
    function = _function(name, action)
    parameters = arguments_of(function) if function else {}
    return {key: value for key, value in parameters.items() if key not in reserved_arguments(function)}


def reserved_arguments(function: Callable[..., Any] | None) -> set[str]:
    """Arguments of a data set's function that are not options: where data sets are kept, and progress.

    The first is called `root`, or `store` where `root` is an option.
    """
    names = arguments_of(function) if function else {}
    return {"self", "store" if "store" in names else "root", "source", "progress"}


def get(name: str, root: Path | str | None = None, source: Path | str | None = None) -> Path:
    """Bring the raw files of a data set to `root` and verify them. Nothing else uses the network.

    Args:
        name: Name of the data set.
        root: Where data sets are kept; `default_root` by default.
        source: A folder that already has the files as distributed; then nothing is downloaded.

    Returns:
        The folder of the raw files (`root` itself for a data set that needs none).

    Raises:
        DataError: If the files cannot be obtained or are damaged.
    """
    function, folder = _function(name, "get"), _root(root)
    return folder if function is None else Path(function(folder, None if source is None else Path(source)))


def prepare(
    name: str, root: Path | str | None = None, /, progress: Progress | None = None, **options: Any
) -> Path:
    """Turn raw files into the cache that `load` opens; does nothing if it is already there.

    Args:
        name: Name of the data set.
        root: Where data sets are kept, as in `load`.
        progress: Called now and then with how much is done, and how much there is to do in all.
        **options: Options of this data set.

    Returns:
        The folder of the cache (`root` itself for a data set that needs none).

    Raises:
        DataError: If raw files are missing or damaged.
    """
    function, folder = _function(name, "prepare"), _root(_by_keyword(name, options, root))
    if function is None:
        return folder
    return Path(function(folder, progress=progress, **_checked(name, "prepare", options)))


def load(name: str, root: Path | str | None = None, /, **options: Any) -> Dataset:
    """Load a data set, preparing it first if needed.

    Args:
        name: Name of the data set, or the import path `package.module:function` of your own function, which
            returns a [`Dataset`][mmb.data.Dataset]. Its arguments are the options; one named `root` gets the
            folder of data sets.
        root: Where data sets are kept; `default_root` by default. It may be given by keyword, unless the
            data set has an option of that name.
        **options: Options of this data set; see `dataset_options`.

    Returns:
        The data set, on the host.

    Raises:
        ValueError: If there is no such data set or option; the message names the nearest.
        TypeError: If your own function does not return a `Dataset`.
        DataError: If files are missing or damaged.
        ImportError: If an optional package is needed; the message names the extra.
    """
    root = _by_keyword(name, options, root)
    function, options = loader(name), _checked(name, "load", options)
    if not is_import_path(name):
        return function(_root(root), **options)
    if "root" in arguments_of(function):
        options = {"root": _root(root), **options}
    found = function(**options)
    if not isinstance(found, Dataset):
        raise TypeError(f"{name} returned a {type(found).__name__}: expected a mmb.data.Dataset")
    return found


def loader(name: str, action: str = "load") -> Callable[..., Any]:
    """The data set's own function behind `load`: its signature and docstring state its options.

    Args:
        name: Name of the data set.
        action: `"load"`, or `"prepare"` for the function behind that, if there is one.

    Returns:
        A function of the root and the options.

    Raises:
        ValueError: If there is no such data set; the message names the nearest.
    """
    found = _function(name, action)
    if found is None:
        found = _function(name, "load")
        assert found is not None
    return found


def _by_keyword(name: str, options: dict[str, Any], root: Path | str | None) -> Path | str | None:
    """Where data sets are kept, which may be given as `root=` unless that is an option of the data set."""
    return root if "root" in dataset_options(name) else options.pop("root", root)


def _root(root: Path | str | None) -> Path:
    return default_root() if root is None else Path(root).expanduser()


def _function(name: str, action: str) -> Callable[..., Any] | None:
    """The function of a data set for an action, if it has one; your own ones load, and no more."""
    if is_import_path(name):
        function: Callable[..., Any] | None = from_import_path(name) if action == "load" else None
        return function
    return getattr(_module(name), action, None)


def _module(name: str) -> ModuleType:
    name = ALIASES.get(name, name)
    if name not in _NAMES:
        raise ValueError(f"there is no data set {name!r}{nearest(name, _NAMES)}{import_path_hint(name)}")
    return importlib.import_module(f"mmb.data.sets.{name}")


def _checked(name: str, action: str, given: dict[str, Any]) -> dict[str, Any]:
    what, known = f"{action} of data set {name!r}", dataset_options(name, action)
    check_options(what, loader(name, action), given, known)
    return given
