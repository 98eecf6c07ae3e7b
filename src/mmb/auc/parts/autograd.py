"""Handing derivatives computed in closed form to autograd."""

from typing import Any

import torch
from torch import Tensor

Gradients = list[tuple[Tensor, Tensor]]  # pairs of an input and the derivative by it
Result = tuple[Tensor, Gradients]  # the value of a loss and its derivatives, that by the logits first


@torch.library.custom_op("mmb::keep", mutates_args=())
def keep(gradient: Tensor) -> Tensor:
    """A copy that a compiler cannot compute again."""
    return gradient.clone()


@keep.register_fake
def _(gradient: Tensor) -> Tensor:
    return torch.empty_like(gradient)


class _WithGradient(torch.autograd.Function):
    """A value whose gradient is known: no graph behind it, one multiplication per input in backward."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: tuple[Tensor, ...], *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*gradients, *inputs)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, outgoing: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        gradients, inputs = saved[: len(saved) // 2], saved[len(saved) // 2 :]
        found = [outgoing * gradient for gradient in gradients]
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # create_graph=True
            unknown = (_Unknown.apply(one) for one in inputs)  # type: ignore[no-untyped-call]
            found = [one + zero for one, zero in zip(found, unknown, strict=True)]
        return None, None, *found


class _Unknown(torch.autograd.Function):
    """A zero that stands for how a derivative depends on an input, which is not known."""

    @staticmethod
    def forward(ctx: Any, source: Tensor) -> Tensor:
        return torch.zeros_like(source)

    @staticmethod
    def backward(ctx: Any, outgoing: Tensor) -> Tensor:
        raise RuntimeError(
            "an objective can be differentiated only once, but the derivative of its gradient was asked for; "
            "for second derivatives, state the loss as an mmb.Problem, or write it with plain autograd"
        )


def add_gradients(gradients: Gradients) -> None:
    """Go backward from inputs with known derivatives, to `.grad` of all parameters they depend on."""
    depending = [pair for pair in gradients if pair[0].requires_grad]
    if not depending:
        raise ValueError(
            "scores: expected logits that depend on a parameter, got some that require no gradient; let a "
            "parameter of the model require gradients, and do not detach what it returns"
        )
    inputs, derivatives = zip(*depending, strict=True)
    torch.autograd.backward(inputs, derivatives)


def with_gradient(value: Tensor, gradients: Gradients) -> Tensor:
    """Return `value`, differentiable by the inputs with the given derivatives, but only once."""
    inputs, derivatives = zip(*gradients, strict=True)
    if torch.compiler.is_compiling():
        # The compiled backward would otherwise recompute them, from block state that has moved since.
        derivatives = tuple(keep(derivative) for derivative in derivatives)
    result: Tensor = _WithGradient.apply(value, derivatives, *inputs)  # type: ignore[no-untyped-call]
    return result
