"""Names that have changed: the old one raises an error that gives the new one."""

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from importlib.abc import MetaPathFinder
from typing import Any, NoReturn, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

_MOVED = {  # modules that the documentation of 0.1.0 imported from, and where to import from now
    **dict.fromkeys(["mmb.auc.compositional_statement", "mmb.auc.statements"], "mmb.auc.as_problem"),
    **dict.fromkeys(["mmb.auc.copies", "mmb.auc.entries", "mmb.auc.margin", "mmb.auc.thresholds"], "mmb.auc"),
    **dict.fromkeys(["mmb.data.graphs", "mmb.data.csv", "mmb.data.digits"], "mmb.data"),
    **dict.fromkeys(["mmb.models.gin", "mmb.models.mlp"], "mmb.models"),
    "mmb.sampling": "mmb.block_sampling",
    "mmb.theory.practical": "mmb.theory",
    **{
        f"mmb.training.{name}": "mmb.training"
        for name in (
            *("compare", "export", "finish", "job", "predict", "presets", "recipe", "reproduce", "resolve"),
            *("run", "tune", "watch"),
        )
    },
}


class _MovedModules(MetaPathFinder):
    """Asked last, when no module of a name is found."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Say where a module has moved."""
        if name in _MOVED:
            raise ModuleNotFoundError(f"{name} has moved: import from {_MOVED[name]}", name=name)


if not any(isinstance(finder, _MovedModules) for finder in sys.meta_path):
    sys.meta_path.append(_MovedModules())


def renamed_names(module: str, new_names: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """A module's `__getattr__` that knows its old names.

    Args:
        module: Name of the module.
        new_names: For each old name, what to write instead.
    """

    def look_up(name: str) -> NoReturn:
        if name in new_names:
            # an AttributeError would be swallowed by `from module import name`
            raise ImportError(f"{module}.{name} is now {new_names[name]}", name=module)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return look_up


def renamed_arguments(**new_names: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Make a function refuse its old keyword arguments.

    Args:
        **new_names: For each old argument, what to write instead.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(function)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            for name in new_names.keys() & kwargs.keys():
                owner: Any = function.__qualname__.removesuffix(".__init__")
                raise TypeError(f"{owner}: the argument {name!r} is now {new_names[name]}")
            return function(*args, **kwargs)

        return checked

    return decorate
