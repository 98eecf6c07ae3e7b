"""Normalization of rows by the statistics of some of them: the rest is padding, which counts for nothing."""

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

Normalized = tuple[Tensor, Tensor, Tensor]
"""Rows `[n, channels]`, and mean and variance `[channels]` of those that count, without derivatives."""


def in_kernels(rows: Tensor) -> bool:
    """Whether torch's GPU kernels compute: compilers make better ones, and `torch.func` needs operations."""
    return rows.is_cuda and not torch.compiler.is_compiling() and not is_functorch_wrapped_tensor(rows)


def by_operations(
    rows: Tensor, weight: Tensor | None, bias: Tensor | None, mask: Tensor, eps: float
) -> Normalized:
    """Normalize by plain operations, which can be differentiated any number of times.

    Args:
        rows: `[n, channels]`.
        weight: Factor of each channel, after normalization.
        bias: Added to each channel, after that.
        mask: `bool [n]`, the rows that count.
        eps: Added to the variance.
    """
    counted = mask.to(torch.float32).unsqueeze(1)
    count = counted.sum().clamp(min=1)
    values = rows.to(torch.promote_types(rows.dtype, torch.float32))
    center = ((values * counted).sum(0) / count).detach()
    # Rows less a constant have the same variance, and a mean of zero with the derivatives of a mean.
    # Neither is computed from the other, so derivatives of any order take few passes over the rows.
    centered = values - center
    mean = (centered * counted).sum(0) / count
    variance = (centered.square() * counted).sum(0) / count - mean.square()
    scale = (variance + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return (centered * scale + shift).to(rows.dtype), center, variance.detach()


def by_kernels(
    rows: Tensor, weight: Tensor | None, bias: Tensor | None, mask: Tensor, eps: float
) -> Normalized:
    """The same by the GPU kernels of torch's `SyncBatchNorm`, which take the statistics to normalize by."""
    found: Normalized = _ByKernels.apply(rows, weight, bias, mask, eps)  # type: ignore[no-untyped-call]
    return found


class _ByKernels(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor | None, bias: Tensor | None, mask: Tensor, eps: float
    ) -> Normalized:
        clean = rows.masked_fill(~mask.unsqueeze(1), 0).contiguous()
        every, counted = len(rows), mask.sum()
        count = counted.clamp(min=1).to(torch.promote_types(rows.dtype, torch.float32))
        mean, inverse = torch.batch_norm_stats(clean, eps)
        # These are of all rows. Without the others, which are zero:
        mean = mean * (every / count)
        squares = every * (inverse.square().reciprocal() - eps) - mean.square() * count * (1 - count / every)
        variance = (squares / count).clamp(min=0)
        inverse = (variance + eps).rsqrt()
        ctx.save_for_backward(rows, weight, bias, mask, clean, mean, inverse, counted.int().view(1))
        ctx.eps = eps
        ctx.mark_non_differentiable(mean, variance)
        return torch.batch_norm_elemt(clean, weight, bias, mean, inverse, eps), mean, variance

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, bias, mask, clean, mean, inverse, count = ctx.saved_tensors
        padding = ~mask.unsqueeze(1)
        grad = grad.masked_fill(padding, 0)
        if torch.is_grad_enabled():  # to be differentiated once more
            output = by_operations(rows, weight, bias, mask, ctx.eps)[0]
            given = [one for one in (rows, weight, bias) if one is not None and one.requires_grad]
            found = iter(torch.autograd.grad(output, given, grad, create_graph=True))
            needed = (one is not None and one.requires_grad for one in (rows, weight, bias))
            return (*(next(found) if need else None for need in needed), None, None)
        needs = ctx.needs_input_grad[:3]
        total, products, by_weight, by_bias = torch.batch_norm_backward_reduce(
            grad.contiguous(), clean, mean, inverse, weight, *needs
        )
        by_rows = None
        if needs[0]:
            by_rows = torch.batch_norm_backward_elemt(
                grad.contiguous(), clean, mean, inverse, weight, total, products, count
            ).masked_fill_(padding, 0)
        return by_rows, by_weight if needs[1] else None, by_bias if needs[2] else None, None, None
