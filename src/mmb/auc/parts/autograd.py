"""Handing derivatives computed in closed form to autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Gradients = list[tuple[Tensor, Tensor]]  # pairs of an input and the derivative by it


@torch.library.custom_op("mmb::keep", mutates_args=())
def keep(gradient: Tensor) -> Tensor:
    """A copy that a compiler cannot compute again."""
    return gradient.clone()


@keep.register_fake
def _(gradient: Tensor) -> Tensor:
    return torch.empty_like(gradient)


class _WithGradient(torch.autograd.Function):
    """A value whose gradient is known: no graph of its own, one multiplication per input going back."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: tuple[Tensor, ...], *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*gradients)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, outgoing: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *(outgoing * gradient for gradient in ctx.saved_tensors)


def with_gradient(value: Tensor, gradients: Gradients) -> Tensor:
    """Return `value`, differentiable by the inputs with the given derivatives.

    Second derivatives through the result are not available.
    """
    inputs, derivatives = zip(*gradients, strict=True)
    if torch.compiler.is_compiling():
        # Else the compiled backward would compute them again, from block state that has moved on since.
        derivatives = tuple(keep(derivative) for derivative in derivatives)
    result: Tensor = _WithGradient.apply(value, derivatives, *inputs)  # type: ignore[no-untyped-call]
    return result
