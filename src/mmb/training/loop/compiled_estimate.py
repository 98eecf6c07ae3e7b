"""What an objective adds to `.grad`, with compiled kernels."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mmb.auc import Batch
from mmb.auc.objective import Objective
from mmb.training.loop.compiled_backward import CompiledBackward

BatchEstimate = Callable[[Batch], dict[str, Tensor]]  # adds to `.grad`, returns numbers worth logging


def can_be_compiled(objective: Objective, by_rows: bool) -> bool:
    """Whether `compiled_estimate` compiles anything."""
    return by_rows or objective.weights_per_task


def compiled_estimate(objective: Objective, model: nn.Module, by_rows: bool) -> BatchEstimate:
    """The estimate with compiled kernels: the network for batches of rows; all if tasks have weights."""
    if objective.weights_per_task:
        return CompiledBackward(objective, model)
    network: Any = model
    if by_rows:
        whole = not objective.evaluates_model
        network = torch.compile(model, dynamic=False) if whole else compiled_encoder(model)
    return partial(objective.backward, network)


def compiled_encoder(model: nn.Module) -> nn.Module:
    """The same model, with its own parameters, whose encoder is compiled."""
    network = copy.copy(model)
    encoder: Any = torch.compile(model.get_submodule("encoder"), dynamic=False)
    network._modules = {**model._modules, "encoder": encoder}
    return network
