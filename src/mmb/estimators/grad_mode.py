"""The modes of torch that training needs, whatever the caller is in."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

_Arguments = ParamSpec("_Arguments")
_Found = TypeVar("_Found")


def with_gradients(method: Callable[_Arguments, _Found]) -> Callable[_Arguments, _Found]:
    """Let a method train inside `torch.no_grad()` and `torch.inference_mode()`, too."""

    @wraps(method)
    def run(*args: _Arguments.args, **options: _Arguments.kwargs) -> _Found:
        with torch.inference_mode(False), torch.enable_grad():
            return method(*args, **options)

    return run
