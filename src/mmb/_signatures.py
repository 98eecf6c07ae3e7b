"""Which arguments a function or class takes by name, also those that its `**kwargs` pass on."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from mmb._extras import require
from mmb._names import nearest

_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def arguments_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Arguments by name, with types and defaults.

    What `**kwargs` pass on to another function or to a base class is among them, as in the keys of recipes.
    """
    own = inspect.signature(function).parameters
    found = {name: one for name, one in own.items() if one.kind not in _MANY}
    if _has_kwargs(function):
        resolvers = require("jsonargparse._parameter_resolvers", extra="training")
        for one in resolvers.get_signature_parameters(function):
            passed = inspect.Parameter(
                one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.annotation
            )
            found.setdefault(one.name, passed)
    return found


def takes_any(function: Callable[..., Any]) -> bool:
    """Whether a function has `**kwargs` of which nobody knows where they go."""
    own = inspect.signature(function).parameters
    return _has_kwargs(function) and set(arguments_of(function)) <= set(own)


def check_options(
    what: str, function: Callable[..., Any], given: Iterable[str], known: Iterable[str]
) -> None:
    """Refuse options that are not known, unless the function takes any.

    Raises:
        ValueError: If there is one; the message names the nearest known option.
    """
    known = list(known)
    for key in given:
        if key not in known and not takes_any(function):
            raise ValueError(f"{what} has no option {key!r}{nearest(key, known)}")


def _has_kwargs(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
