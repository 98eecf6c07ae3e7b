"""A model with weights of its own for every task, all tasks evaluated at once."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, jvp

from mmb.auc.batches import Batch, TaskBatch
from mmb.auc.entries import Entries
from mmb.models.multitask import MultiTask
from mmb.trees import tree_leaves

Weights = tuple[Tensor, ...]  # trainable parameters of the encoder, the head's weight, the head's bias
Buffers = dict[str, Tensor]


class TaskwiseModel:
    """The model on a batch with weights per task: all tasks at once.

    Weights whose first axis is missing (the model's own encoder) are shared by the tasks.
    """

    def __init__(self, model: MultiTask, names: list[str], batch: Batch, entries: Entries) -> None:
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
        # Batch normalisation writes to its buffers in training mode, so each task has its own.
        kept = dict(self.encoder.named_buffers()) if self.encoder.training else {}
        self.buffers = {name: old.expand(self.shape[0], *old.shape) for name, old in kept.items()}

    def logits(self, weights: Weights) -> Tensor:
        """Logits ``[k, r]`` with weights ``[k, ...]``."""
        evaluate = torch.vmap(self._one, in_dims=(0, 0, self.inputs_axis), randomness="different")
        logits, self.buffers = evaluate(weights, self.buffers, self.inputs)
        return self._checked(logits)

    def cross_entropy_gradients(self, weights: Weights) -> Weights:
        """``grad CE_i(w_i)``, ``[k, ...]`` each."""
        count = self.shape[0]
        *shared, head, bias = (weight.detach() for weight in weights)
        own = [weight.expand(count, *weight.shape) for weight in shared] + [head, bias]
        leaves = tuple(weight.detach().requires_grad_() for weight in own)
        with torch.enable_grad():
            logits = self.logits(leaves)
        return torch.autograd.grad(logits, leaves, self._cross_entropy_slope(logits.detach()))

    def cross_entropy_products(self, weights: Weights, directions: Weights) -> tuple[Weights, Weights]:
        """``grad CE_i(w_i)`` per task, and ``Hess CE_i(w_i) v_i``, summed over the tasks that share a weight.

        Both are derivatives of ``sum_i <grad CE_i(w_i), v_i>``, by ``v`` and by ``w``. That sum is the slope
        of the cross-entropy along ``v``, so one forward pass that carries the slope along and one backward
        pass give all of it; gradients of shared weights are never laid out per task.
        """
        directions = tuple(direction.detach().requires_grad_() for direction in directions)

        def one(weights: Weights, directions: Weights, buffers: Buffers, inputs: Any) -> Any:
            logits = partial(self._one, buffers=buffers, inputs=inputs)
            return jvp(logits, (weights,), (directions,), has_aux=True)

        axes = (*(None for _ in self.names), 0, 0)
        evaluate = torch.vmap(one, in_dims=(axes, 0, 0, self.inputs_axis), randomness="different")
        with torch.enable_grad():
            logits, slopes, self.buffers = evaluate(weights, directions, self.buffers, self.inputs)
            slope = (self._cross_entropy_slope(self._checked(logits)) * slopes).sum()
        found = torch.autograd.grad(slope, [*weights, *directions])
        return found[len(weights) :], found[: len(weights)]

    @torch.no_grad()
    def update_running_statistics(self) -> None:
        """Move the model's buffers to the mean over tasks of what they became in the evaluation."""
        for name, new in self.buffers.items():
            old = self.encoder.get_buffer(name)
            if old.is_floating_point():
                old.add_((new - old).mean(0))  # leaves a constant exactly as it is
            else:
                old.copy_(new[0])

    def _one(self, weights: Weights, buffers: Buffers, inputs: Any) -> tuple[Tensor, Buffers]:
        """Logits of one task, and what the encoder's buffers become."""
        *shared, head, bias = weights
        buffers = {name: old.clone() for name, old in buffers.items()}
        state = dict(zip(self.names, shared, strict=True)) | buffers
        features = functional_call(self.encoder, state, (inputs,))
        return (features * head).sum(-1) + bias, buffers

    def _cross_entropy_slope(self, logits: Tensor) -> Tensor:
        """``dCE_i / dlogit``, ``[k, r]``."""
        positive, negative = self.entries.positive.T, self.entries.negative.T
        return 0.5 * (negative * torch.sigmoid(logits) - positive * torch.sigmoid(-logits)).to(logits.dtype)

    def _checked(self, logits: Tensor) -> Tensor:
        if logits.shape != self.shape:
            raise ValueError(f"the inputs give logits {tuple(logits.shape)} but the labels are {self.shape}")
        return logits
