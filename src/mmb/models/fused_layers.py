r"""A layer of GIN on a GPU in few passes over memory, with derivatives by hand.

$$
a_v = (1 + \epsilon) x_v + \sum_{u \to v} \mathrm{relu}(x_u + e_{uv}), \quad
h = a W_1^T, \quad z = \mathrm{relu}(\mathrm{norm}(h)), \quad
h' = z W_2^T, \quad x' = \mathrm{dropout}(\mathrm{relu}(\mathrm{norm}(h')))
$$

Matrix products sum the columns of what they write, and their squares, so that the statistics of a norm cost
no pass of their own; in the backward pass, they apply the derivative of the relu and sum what the gradient of
the norm needs. A bias in front of a norm changes the running mean alone: its gradient is zero. What is
dropped is computed again in the backward pass, from the number of the feature and a seed of the layer.

Everything is written once, in the precision of the features, and summed in float32. Features are stored with
columns of zeros up to a multiple of 16 bytes.
"""

from collections.abc import Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.function import once_differentiable

from mmb.data.inputs.graphs import FixedGraphs, GraphBatch
from mmb.models.batch_norm import MaskedBatchNorm
from mmb.models.message_operators import MOST_CODES, aligned

try:
    import triton

    from mmb.models import _layer_steps as steps
except ImportError:  # without Triton there are no GPU kernels: plain operations serve
    triton = None


class NormedProducts(Protocol):
    """Two products, each with a norm."""

    linear1: nn.Linear
    norm1: MaskedBatchNorm
    linear2: nn.Linear
    norm2: MaskedBatchNorm


def can_fuse(layers: Sequence[NormedProducts], nodes: Tensor, batch: GraphBatch) -> bool:
    """Whether the kernels compute these layers of a network in training, on features like the nodes."""
    norms = [norm for layer in layers for norm in (layer.norm1, layer.norm2)]
    weight = layers[0].linear1.weight
    return (
        triton is not None
        and type(batch) is FixedGraphs
        and nodes.is_cuda
        and nodes.dtype == torch.bfloat16
        and weight.dtype == torch.float32
        and len(batch.bond_table) <= MOST_CODES
        and (torch.compiler.is_compiling() or not is_functorch_wrapped_tensor(weight))
        and all(
            type(norm) is MaskedBatchNorm and norm.training and norm.track_running_stats for norm in norms
        )
        and norms[0].momentum is not None
        and all(norm.momentum == norms[0].momentum for norm in norms)
    )


class FusedLayers:
    """The layers of one forward pass.

    Args:
        layers: Products and norms of each.
        dropout: Share of features that is dropped after each, rounded to 1 / 65,536.
        batch: The graphs.
    """

    def __init__(self, layers: Sequence[NormedProducts], dropout: float, batch: GraphBatch) -> None:
        self._layers, self._dropout, self._batch = layers, dropout, batch
        self._seeds = torch.randint(1 << 62, (len(layers), 1), device=batch.edges.device)
        self._averaged: list[Tensor] = []
        self._moments: list[Tensor] = []

    def __call__(self, number: int, nodes: Tensor, bonds: Tensor, epsilon: Tensor) -> Tensor:
        """Features $x'$ of the nodes after a layer; its relu is left out in the last one.

        Args:
            number: Of the layer.
            nodes: $x$, `[N, aligned(width)]`, zero beyond the width. Rows of padding do not count.
            bonds: Features of the bonds, as the nodes', at most 64.
            epsilon: `[1]`.
        """
        layer, batch = self._layers[number], self._batch
        norms = (layer.norm1, layer.norm2)
        inputs = [
            part
            for linear, norm in zip((layer.linear1, layer.linear2), norms, strict=True)
            for part in (linear.weight, norm.weight, norm.bias, linear.bias)
        ]
        result, *moments = _FusedLayer.apply(  # type: ignore[no-untyped-call]
            nodes, bonds, epsilon, *inputs,
            batch.edges, batch.bond_codes, batch.edge_ptr, batch.graph_ptr[-2:-1], self._seeds[number],
            norms[0].eps, norms[1].eps, round(self._dropout * 65536), number < len(self._layers) - 1,
        )  # fmt: skip
        for norm, moment in zip(norms, moments, strict=True):
            self._averaged += [cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)]
            self._moments += moment.unbind(0)
        return result

    def track(self) -> None:
        """Move the running averages of all norms, as the norms themselves do."""
        norms = [norm for layer in self._layers for norm in (layer.norm1, layer.norm2)]
        with torch.no_grad():
            torch._foreach_lerp_(self._averaged, self._moments, cast(float, norms[0].momentum))
            torch._foreach_add_([cast(Tensor, norm.num_batches_tracked) for norm in norms], 1)

    def mean(self, nodes: Tensor) -> Tensor:
        """Means over the nodes of each graph, `[G, aligned(width)]`."""
        found: Tensor = _Mean.apply(nodes, self._batch.graph, self._batch.graph_ptr)  # type: ignore[no-untyped-call]
        return found


def _forward(
    nodes: Tensor, bonds: Tensor, epsilon: Tensor,
    weight1: Tensor, scale1: Tensor, shift1: Tensor, before1: Tensor,
    weight2: Tensor, scale2: Tensor, shift2: Tensor, before2: Tensor,
    edges: Tensor, codes: Tensor, ptr: Tensor, real: Tensor, seed: Tensor,
    eps1: float, eps2: float, dropped: int, relu: bool,
) -> list[Tensor]:  # fmt: skip
    """$x'$, and what the backward pass needs: a, h, z, h', statistics, padded weights."""
    tiles, nodes, bonds = steps.TILES, nodes.contiguous(), bonds.contiguous()
    into, out = (steps.pad(weight, nodes.dtype) for weight in (weight1, weight2))
    gathered = steps.gather(nodes, bonds, epsilon, edges, codes, ptr, real)
    hidden, sums = steps.product(gathered, into, tiles.into, "moments")
    found1 = steps.statistics(sums, scale1, shift1, before1, real, eps1)
    passed = steps.norm(hidden, found1, real, seed, True, 0)
    last, sums = steps.product(passed, out, tiles.out, "moments")
    found2 = steps.statistics(sums, scale2, shift2, before2, real, eps2)
    result = steps.norm(last, found2, real, seed, relu, dropped)
    return [result, gathered, hidden, passed, last, found1, found2, into, out]


def _forward_shapes(nodes: Tensor, *others: Any) -> list[Tensor]:
    width, inner = nodes.shape[1], aligned(others[2].shape[0])
    wide = nodes.new_empty(len(nodes), inner)
    found = [nodes.new_empty(6, size, dtype=torch.float32) for size in (inner, width)]
    weights = [nodes.new_empty(inner, width), nodes.new_empty(width, inner)]
    same = [torch.empty_like(nodes) for _ in range(3)]
    return [same[0], same[1], wide, torch.empty_like(wide), same[2], *found, *weights]


def _backward(
    grad: Tensor, nodes: Tensor, bonds: Tensor, epsilon: Tensor,
    gathered: Tensor, hidden: Tensor, passed: Tensor, last: Tensor, found1: Tensor, found2: Tensor,
    into: Tensor, out: Tensor, edges: Tensor, codes: Tensor, ptr: Tensor, real: Tensor, seed: Tensor,
    width: int, inner: int, dropped: int, relu: bool,
) -> list[Tensor]:  # fmt: skip
    """Gradients of nodes, bonds, epsilon, and of weight, scale and shift of both products."""
    tiles, nodes, bonds = steps.TILES, nodes.contiguous(), bonds.contiguous()
    sums = steps.norm_sums(grad, last, found2, real, seed, relu, dropped)
    factors, by_scale2, by_shift2 = steps.gradients(sums, found2, real, width)
    by_last = steps.norm_backward(grad, last, found2, factors, real, seed, relu, dropped)
    by_weight2 = (by_last.t() @ passed)[:width, :inner].to(torch.float32)
    by_hidden, sums = steps.product(by_last, out.t(), tiles.back, "passed", hidden, found1)
    factors, by_scale1, by_shift1 = steps.gradients(sums, found1, real, inner)
    by_hidden = steps.norm_backward(by_hidden, hidden, found1, factors, real, seed, False, 0)
    by_weight1 = (by_hidden.t() @ gathered)[:inner, :width].to(torch.float32)
    by_gathered = by_hidden @ into
    messages = steps.scatter(by_gathered, nodes, bonds, epsilon, edges, codes, ptr, real)
    return [
        *messages,
        by_weight1.contiguous(),
        by_scale1,
        by_shift1,
        by_weight2.contiguous(),
        by_scale2,
        by_shift2,
    ]


def _backward_shapes(
    grad: Tensor, nodes: Tensor, bonds: Tensor, epsilon: Tensor, *others: Any
) -> list[Tensor]:
    width, inner = others[13:15]

    def new(*shape: int) -> Tensor:
        return nodes.new_empty(*shape, dtype=torch.float32)

    inputs = [torch.empty_like(one) for one in (nodes, bonds, epsilon)]
    return [*inputs, new(inner, width), new(inner), new(inner), new(width, inner), new(width), new(width)]


_layer_operator: Any = torch.library.custom_op("mmb::fused_layer", _forward, mutates_args=())
_layer_operator.register_fake(_forward_shapes)
_adjoint_operator: Any = torch.library.custom_op("mmb::fused_layer_adjoint", _backward, mutates_args=())
_adjoint_operator.register_fake(_backward_shapes)


def _mean(nodes: Tensor, graph: Tensor, ptr: Tensor) -> Tensor:
    return steps.mean(nodes, ptr)


def _mean_backward(grad: Tensor, graph: Tensor, ptr: Tensor) -> Tensor:
    return steps.mean_backward(grad, graph, ptr)


_mean_operator: Any = torch.library.custom_op("mmb::mean_of_nodes", _mean, mutates_args=())
_mean_operator.register_fake(lambda nodes, graph, ptr: nodes.new_empty(len(ptr) - 2, nodes.shape[1]))
_spread_operator: Any = torch.library.custom_op("mmb::mean_of_nodes_adjoint", _mean_backward, mutates_args=())
_spread_operator.register_fake(lambda grad, graph, ptr: grad.new_empty(len(graph), grad.shape[1]))


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, nodes: Tensor, graph: Tensor, ptr: Tensor) -> Tensor:
        ctx.save_for_backward(graph, ptr)
        found: Tensor = _mean_operator(nodes, graph, ptr)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _spread_operator(grad.contiguous(), *ctx.saved_tensors), None, None


class _FusedLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        result, *kept = _layer_operator(*inputs)
        ctx.save_for_backward(*inputs[:3], *kept, *inputs[11:16])
        weight = inputs[3]
        ctx.sizes = (weight.shape[1], weight.shape[0], *inputs[18:])
        moments = [
            found[4:, :size]
            for found, size in zip(kept[4:6], (weight.shape[0], weight.shape[1]), strict=True)
        ]
        ctx.mark_non_differentiable(*moments)
        return result, moments[0], moments[1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        by = _adjoint_operator(grad.contiguous(), *ctx.saved_tensors, *ctx.sizes)
        nothing = [torch.zeros_like(one) for one in (by[4], by[7])]  # gradients of biases in front of a norm
        return (*by[:6], nothing[0], *by[6:], nothing[1], *[None] * 9)
