"""Compiling a method for one object, independently of other objects of its class."""

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch


def compile_alone(method: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a bound method as one graph, apart from the same method of all other objects.

    The compiler keeps its results with the code object, which all objects of a class share, and refuses
    more than a few there: objects that differ in what it takes for constant would soon use them up. So the
    method gets its own code object.
    """
    assert isinstance(method, MethodType)
    shared = method.__func__
    assert isinstance(shared, FunctionType)
    code, names = shared.__code__.replace(), shared.__globals__
    own = FunctionType(code, names, shared.__name__, shared.__defaults__, shared.__closure__)
    return torch.compile(MethodType(own, method.__self__), fullgraph=True)
