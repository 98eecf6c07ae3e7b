"""Gradients with derivatives of derivatives in them, compiled as one graph.

`torch.compile` compiles a network and its derivative only; the exact gradient of compositional training
differentiates the network twice. So its tensor operations are recorded as they are computed, derivatives
included, and the record is compiled.
"""

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from mmb.auc import Batch
from mmb.auc.objective import Objective


class CompiledBackward:
    """`objective.backward(model, batch)` of one batch, whose values change in place, as a compiled graph.

    The first call computes as usual and records; later ones run the record on the values that weights, block
    state and batch have then. Whatever is not a tensor stays as it was at the first call: see
    `Objective.hold_block_rates`.
    """

    def __init__(self, objective: Objective, model: nn.Module) -> None:
        self._objective, self._model = objective, model
        self._graph: Callable[[], Sequence[Tensor]] | None = None
        self._batch: Batch | None = None
        self._names: list[str] = []
        self._moved: list[nn.Parameter] = []

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """Set `.grad` (None before) and move the block state; another batch object is recorded again."""
        if self._graph is None or batch is not self._batch:
            return self._record(batch)
        with torch.no_grad(), torch.autocast(self._moved[0].device.type, enabled=False):
            found = self._graph()
        numbers, gradients = found[: len(self._names)], found[len(self._names) :]
        for weight, gradient in zip(self._moved, gradients, strict=True):
            weight.grad = gradient
        return dict(zip(self._names, numbers, strict=True))

    def _record(self, batch: Batch) -> dict[str, Tensor]:
        numbers: dict[str, Tensor] = {}
        self._batch, self._graph = batch, None

        def estimate() -> list[Tensor | None]:
            numbers.update(self._objective.backward(self._model, batch))
            modules = (self._model, self._objective)
            self._moved = [w for module in modules for w in module.parameters() if w.grad is not None]
            return [*numbers.values(), *(weight.grad for weight in self._moved)]

        with torch.autograd.set_multithreading_enabled(False):  # a backward thread would not be recorded
            recorded = make_fx(estimate)()
        self._names = list(numbers)
        with torch.no_grad(), torch.autocast(self._moved[0].device.type, enabled=False):
            self._graph = compiled(recorded)
        return numbers


def compiled(recorded: GraphModule) -> Callable[[], Sequence[Tensor]]:
    """Compile a recorded graph that has no inputs and returns a list of tensors.

    `torch.compile` would first read all of its operations, thousands in a deep network, again as Python.
    A graph that the compiler fails on is run as it was recorded, with a warning.
    """
    from torch._inductor import exc, standalone_compile  # costs a second, so only when needed

    inputs = tensors_as_inputs(recorded)
    graph: Callable[..., Sequence[Tensor]] = recorded
    try:
        # With shapes of its own: graphs without any are not kept for the next process.
        graph = standalone_compile(recorded, [*inputs], dynamic_shapes="from_example_inputs")
    except exc.InductorError as error:
        reason = str(error).strip().splitlines()
        message = "the step could not be compiled and runs as it was recorded, which is slower"
        warnings.warn(f"{message}: {reason[0]} {reason[-1]}", stacklevel=2)
    return lambda: graph(*inputs)


def tensors_as_inputs(recorded: GraphModule) -> list[Tensor]:
    """Make inputs of the tensors that a recorded graph refers to, so that they are not constants."""
    graph, inputs, places = recorded.graph, [], {}
    start = next(node for node in graph.nodes if node.op != "get_attr")
    referred = graph.find_nodes(op="get_attr")
    for node in referred:
        value = getattr(recorded, node.target)
        if id(value) not in places:
            with graph.inserting_before(start):
                places[id(value)] = graph.placeholder(node.target)
            inputs.append(value)
        node.replace_all_uses_with(places[id(value)])
        graph.erase_node(node)
    for name in {node.target for node in referred}:
        delattr(recorded, name)  # the compiler copies what a graph has
    recorded.recompile()
    return inputs
