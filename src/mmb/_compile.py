"""Compiling a method of one object, whatever was compiled of its class before."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch


def compile_alone(method: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a bound method as one graph, apart from the same method of all other objects.

    The compiler keeps what it has compiled with the code object, which all objects of a class share, and
    refuses more than a few entries there: objects that differ in anything it takes for constant would soon
    exhaust them. So the method gets a code object of its own.

    Args:
        method: A bound method.

    Returns:
        A function with the method's arguments.
    """
    assert isinstance(method, MethodType)
    shared = method.__func__
    assert isinstance(shared, FunctionType)
    code, names = shared.__code__.replace(), shared.__globals__
    own = FunctionType(code, names, shared.__name__, shared.__defaults__, shared.__closure__)
    return torch.compile(MethodType(own, method.__self__), fullgraph=True)
