"""A model with separate weights for every task, all tasks evaluated at once."""

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mmb.auc.batches import Batch, TaskBatch
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.models.multitask import MultiTask
from mmb.models.ranges import Ranges
from mmb.trees import tree_leaves

Weights = tuple[Tensor, ...]  # trainable parameters of the encoder, the head's weight, the head's bias
Buffers = dict[str, Tensor]
_BY_ROW = (  # layers without weights that treat every row by itself
    nn.ReLU,
    nn.LeakyReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softplus,
    nn.Dropout,
    nn.Identity,
    Ranges,
)


class TaskwiseModel:
    """The model on a batch, with separate heads and encoder parameters (those in `names`) for every task."""

    def __init__(self, model: MultiTask, names: list[str], batch: Batch, entries: WeightedScores) -> None:
        self.encoder, self.names, self.entries = model.encoder, names, entries
        self.inputs, self.inputs_axis = batch.inputs, None
        self.shape = tuple(entries.positive.T.shape)  # [k, r]
        if isinstance(batch, TaskBatch):
            self.inputs_axis = 0
            for leaf in tree_leaves(batch.inputs):
                if not isinstance(leaf, Tensor) or leaf.dim() == 0 or len(leaf) != self.shape[0]:
                    raise TypeError(
                        f"inputs of a task-sampled batch must be tensors whose first axis counts its "
                        f"{self.shape[0]} tasks (or a nest of them), so that each task can be evaluated with "
                        f"its own weights; got {getattr(leaf, 'shape', type(leaf).__name__)}"
                    )
        # Batch normalization writes to its buffers in training mode, so each task has its own.
        kept = dict(self.encoder.named_buffers()) if self.encoder.training else {}
        self.buffers = {name: old.expand(self.shape[0], *old.shape) for name, old in kept.items()}

    def own(self, weights: Weights) -> Weights:
        """The model's weights as leaves `[k, ...]`, one for every task; the encoder's are not copied."""
        *shared, head, bias = (weight.detach() for weight in weights)
        expanded = (weight.expand(self.shape[0], *weight.shape) for weight in shared)
        return tuple(weight.detach().requires_grad_() for weight in (*expanded, head, bias))

    def logits(self, weights: Weights) -> Tensor:
        """Logits `[k, r]` with weights `[k, ...]`."""
        rows_axes = 2 if self.inputs_axis is None else 3
        if is_mlp(self.encoder) and isinstance(self.inputs, Tensor) and self.inputs.dim() == rows_axes:
            *shared, head, bias = weights
            inputs = self.inputs.expand(self.shape[0], -1, -1)
            features = stacked_mlp(self.encoder, dict(zip(self.names, shared, strict=True)), inputs)
            logits = (features * head.unsqueeze(1)).sum(2) + bias.unsqueeze(1)
        else:
            one = partial(self._one, self._places())
            evaluate = torch.vmap(one, in_dims=(0, 0, self.inputs_axis), randomness="different")
            logits, self.buffers = evaluate(weights, self.buffers, self.inputs)
        if logits.shape != self.shape:
            raise ValueError(f"the inputs give logits {tuple(logits.shape)} but the labels are {self.shape}")
        return logits

    def cross_entropy_steps(
        self, weights: Weights, lr: float, create_graph: bool, center: Tensor | None = None
    ) -> Weights:
        """`-lr grad CE_i(w_i)` of logits less `center` `[k]`, at weights `[k, ...]` that require gradients.

        They are differentiated again by plain autograd around `vmap`, which is right for every layer;
        derivatives of `torch.func` inside autograd are silently wrong for batch and layer normalization.
        """
        logits = self.logits(weights)
        with torch.set_grad_enabled(create_graph):
            positive, negative = self.entries.positive.T, self.entries.negative.T
            shifted = logits if center is None else logits - center.unsqueeze(1)
            slope = -0.5 * lr * (negative * torch.sigmoid(shifted) - positive * torch.sigmoid(-shifted))
        return torch.autograd.grad(
            logits, weights, slope.to(logits.dtype), create_graph=create_graph, materialize_grads=True
        )

    @torch.no_grad()
    def update_running_statistics(self) -> None:
        """Move the model's buffers to the mean over tasks of their new values in the evaluation."""
        for name, new in self.buffers.items():
            old = self.encoder.get_buffer(name)
            if old.is_floating_point():
                old.add_((new - old).mean(0))  # leaves a constant exactly as it is
            else:
                old.copy_(new[0])

    def _one(
        self, places: list[tuple[str, int]], weights: Weights, buffers: Buffers, inputs: Any
    ) -> tuple[Tensor, Buffers]:
        """Logits of one task, and what the encoder's buffers become."""
        buffers = {name: old.clone() for name, old in buffers.items()}
        state = {place: weights[index] for place, index in places} | buffers
        features = functional_call(self.encoder, state, (inputs,), tie_weights=False)
        return (features * weights[-2]).sum(-1) + weights[-1], buffers

    def _places(self) -> list[tuple[str, int]]:
        """Where in the encoder each weight is used; `functional_call` spoils modules that occur twice."""
        index = {id(self.encoder.get_parameter(name)): index for index, name in enumerate(self.names)}
        return [
            (f"{prefix}.{name}".lstrip("."), index[id(weight)])
            for prefix, module in self.encoder.named_modules()
            for name, weight in module.named_parameters(recurse=False)
            if id(weight) in index
        ]


def is_mlp(encoder: nn.Module) -> TypeGuard[nn.Sequential]:
    """Whether it is a plain sequence of linear layers and `_BY_ROW`, without hooks or shared parameters."""
    if type(encoder) is not nn.Sequential:
        return False
    layers = list(encoder)
    return (
        all(type(layer) is nn.Linear or type(layer) in _BY_ROW for layer in layers)
        and not any(part._forward_hooks or part._forward_pre_hooks for part in (encoder, *layers))
        and len(list(encoder.parameters())) == len(list(encoder.named_parameters(remove_duplicate=False)))
    )


def stacked_mlp(encoder: nn.Sequential, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    """Features `[k, r, d]` of every task's rows with its weights; saves a tenth of a step over `vmap`."""
    hidden = inputs
    for name, layer in encoder.named_children():
        if not isinstance(layer, nn.Linear):
            hidden = layer(hidden)
            continue
        weight = weights.get(f"{name}.weight", layer.weight).expand(len(hidden), -1, -1)
        if layer.bias is None:
            hidden = torch.bmm(hidden, weight.mT)
        else:
            bias = weights.get(f"{name}.bias", layer.bias).expand(len(hidden), -1)
            hidden = torch.baddbmm(bias.unsqueeze(1), hidden, weight.mT)
    return hidden
