r"""A layer of GIN on a GPU in few passes over memory, with derivatives by hand.

$$
a_v = (1 + \epsilon) x_v + \sum_{u \to v} \mathrm{relu}(x_u + e_{uv}), \quad
h = a W_1^T, \quad z = \mathrm{relu}(\mathrm{norm}(h)), \quad
h' = z W_2^T, \quad x' = \mathrm{dropout}(\mathrm{relu}(\mathrm{norm}(h')))
$$

Matrix products are cuBLAS's. One pass over their output finds the statistics of a norm, another normalizes.
In the backward pass, one finds the two sums that the gradient of a norm needs, another computes it, both from
the gradient of what follows the relu. A bias in front of a norm changes the running mean alone: its gradient
is zero. What is dropped is computed again in the backward pass, from the number of the feature and a seed of
the layer; or not at all, where the next layer alone reads the features: it hands back only gradients of
those that are positive.

Everything is written once, in the precision of the features, and summed in float32. Features are stored with
columns of zeros up to a multiple of 32 bytes.
"""

from collections.abc import Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.function import once_differentiable

from mmb.data.inputs.graphs import FixedGraphs, GraphBatch
from mmb.models.batch_norm import MaskedBatchNorm
from mmb.models.message_operators import MOST_CODES

try:
    import triton

    from mmb.models import _layer_steps as steps
except ImportError:  # without Triton there are no GPU kernels: plain operations serve
    triton = None

# Not until a GPU has compared large batches in bfloat16 with plain layers (`benchmarks/fused_layers.py`).
IN_USE = False
WIDEST = 16_384  # columns of products that the kernels have counters for


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
        IN_USE
        and triton is not None
        and type(batch) is FixedGraphs
        and nodes.is_cuda
        and nodes.dtype == torch.bfloat16
        and weight.dtype == torch.float32
        and len(batch.bond_table) <= MOST_CODES
        and weight.shape[0] <= WIDEST
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
        bonds: Features of the bonds in every layer, `[layers, B, width]` with at most 64 bonds.
        chained: Whether the features after a layer are read by the next layer alone.
    """

    def __init__(
        self,
        layers: Sequence[NormedProducts],
        dropout: float,
        batch: GraphBatch,
        bonds: Tensor,
        chained: bool,
    ) -> None:
        self._layers, self._dropout, self._batch, self._chained = layers, dropout, batch, chained
        width = bonds.shape[2]
        self.padding = steps.aligned(width) - width  # columns of zeros at the end of all features
        bonds = nn.functional.pad(bonds, (0, self.padding))
        # Their gradients are sums in float32, so that is what they are gradients of.
        self._bonds, self._sent = bonds.to(torch.float32).unbind(0), bonds.detach().unbind(0)
        self._seeds = torch.randint(1 << 62, (len(layers), 1), device=batch.edges.device)
        self._averaged: list[Tensor] = []
        self._moments: list[Tensor] = []

    def __call__(self, number: int, nodes: Tensor, epsilon: Tensor) -> Tensor:
        """Features $x'$ of the nodes after a layer; its relu is left out in the last one.

        Args:
            number: Of the layer.
            nodes: $x$, `[N, width + padding]`, zero beyond the width. Rows of padding do not count.
            epsilon: `[1]`.
        """
        layer, batch, last = self._layers[number], self._batch, len(self._layers) - 1
        norms = (layer.norm1, layer.norm2)
        inputs = [
            part
            for linear, norm in zip((layer.linear1, layer.linear2), norms, strict=True)
            for part in (linear.weight, norm.weight, norm.bias, linear.bias)
        ]
        result, *moments = _FusedLayer.apply(  # type: ignore[no-untyped-call]
            nodes, self._bonds[number], epsilon, *inputs, self._sent[number],
            batch.edges, batch.bond_codes, batch.edge_ptr, batch.graph_ptr[-2:-1], self._seeds[number],
            norms[0].eps, norms[1].eps, round(self._dropout * 65536), number < last,
            self._chained and number > 0, self._chained and number < last,
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
    sent: Tensor, edges: Tensor, codes: Tensor, ptr: Tensor, real: Tensor, seed: Tensor,
    eps1: float, eps2: float, dropped: int, relu: bool,
) -> list[Tensor]:  # fmt: skip
    """$x'$, and what the backward pass needs: a, h, z, h', statistics, padded weights, counters at zero."""
    nodes = nodes.contiguous()
    into, out, done = steps.pad(weight1, weight2, nodes.dtype)
    gathered = steps.gather(nodes, sent, epsilon, steps.Graph(edges, codes, ptr, real))
    hidden = gathered @ into.t()
    found1 = steps.statistics(hidden, scale1, shift1, before1, real, done[0], eps1)
    passed = steps.norm(hidden, found1, real, seed, True, 0)
    last = passed @ out.t()
    found2 = steps.statistics(last, scale2, shift2, before2, real, done[1], eps2)
    result = steps.norm(last, found2, real, seed, relu, dropped)
    return [result, gathered, hidden, passed, last, found1, found2, into, out, done]


def _forward_shapes(
    nodes: Tensor, bonds: Tensor, epsilon: Tensor, weight1: Tensor, *others: Any
) -> list[Tensor]:
    inner, width = (steps.aligned(size) for size in weight1.shape)
    wide = nodes.new_empty(nodes.shape[0], inner)
    found = [nodes.new_empty(6, size, dtype=torch.float32) for size in (inner, width)]
    weights = [nodes.new_empty(inner, width), nodes.new_empty(width, inner)]
    done = nodes.new_empty(4, steps.COUNTERS // 4, dtype=torch.int32)
    same = [torch.empty_like(nodes) for _ in range(3)]
    return [same[0], same[1], wide, torch.empty_like(wide), same[2], *found, *weights, done]


def _backward(
    grad: Tensor, nodes: Tensor, epsilon: Tensor,
    gathered: Tensor, hidden: Tensor, passed: Tensor, last: Tensor, found1: Tensor, found2: Tensor,
    into: Tensor, out: Tensor, done: Tensor,
    sent: Tensor, edges: Tensor, codes: Tensor, ptr: Tensor, real: Tensor, seed: Tensor,
    width: int, inner: int, dropped: int, relu: bool, hands_back: bool, is_handed: bool,
) -> list[Tensor]:  # fmt: skip
    """Gradients of nodes, of bonds and epsilon, and of weight, scale, shift and bias of both products.

    If `hands_back`, that of nodes is zero where they are not positive; if `is_handed`, so is that of $x'$.
    """
    nodes = nodes.contiguous()
    how = (relu and not is_handed, 0 if is_handed else dropped, steps.LOTS / (steps.LOTS - dropped))
    factors, *by_norm2 = steps.gradients(grad, last, found2, real, seed, done[2], width, *how)
    by_last = steps.norm_backward(grad, last, found2, factors, real, seed, *how)
    by_weight2 = by_last.t() @ passed
    by_passed = by_last @ out
    factors, *by_norm1 = steps.gradients(by_passed, hidden, found1, real, seed, done[3], inner, True, 0, 1.0)
    by_hidden = steps.norm_backward(by_passed, hidden, found1, factors, real, seed, True, 0, 1.0)
    by_weight1 = by_hidden.t() @ gathered
    by_gathered = by_hidden @ into
    graph = steps.Graph(edges, codes, ptr, real)
    by_nodes, by_bonds = steps.scatter(by_gathered, nodes, sent, epsilon, graph, hands_back)
    by_weight1, by_weight2 = steps.cut(by_weight1, by_weight2, inner, width)
    return [by_nodes, by_bonds, by_weight1, *by_norm1, by_weight2, *by_norm2]


def _backward_shapes(grad: Tensor, nodes: Tensor, epsilon: Tensor, *others: Any) -> list[Tensor]:
    sent = others[9]
    width, inner = others[15:17]

    def new(*shape: int) -> Tensor:
        return nodes.new_empty(*shape, dtype=torch.float32)

    sizes = (inner, inner, inner), (width, width, width)
    return [
        torch.empty_like(nodes), new(len(sent) + 1, nodes.shape[1]),
        new(inner, width), *map(new, sizes[0]), new(width, inner), *map(new, sizes[1]),
    ]  # fmt: skip


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
        *given, hands_back, is_handed = inputs
        result, *kept = _layer_operator(*given)
        nodes, _, epsilon, weight = inputs[:4]
        ctx.save_for_backward(nodes, epsilon, *kept, *inputs[11:17])
        ctx.sizes = (weight.shape[1], weight.shape[0], *inputs[19:21], hands_back, is_handed)
        moments = [kept[4][4:, : weight.shape[0]], kept[5][4:, : weight.shape[1]]]
        ctx.mark_non_differentiable(*moments)
        ctx.set_materialize_grads(False)  # they would be zeros
        return result, moments[0], moments[1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        by_nodes, by_bonds, *others = _adjoint_operator(grad.contiguous(), *ctx.saved_tensors, *ctx.sizes)
        return (by_nodes, by_bonds[:-1], by_bonds[-1, :1], *others, *[None] * 12)
