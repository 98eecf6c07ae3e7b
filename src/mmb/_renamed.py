"""Names that have changed: the old one raises an error that says the new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


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
