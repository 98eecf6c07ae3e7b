"""What an objective adds to `.grad`, with compiled kernels."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mmb.auc import Batch
from mmb.auc.objective import Objective
from mmb.models import MultiTask
from mmb.training.loop.compiled_backward import SAME_RANDOM_NUMBERS, CompiledBackward

BatchEstimate = Callable[[Batch], dict[str, Tensor]]  # adds to `.grad`, returns numbers worth logging


def can_be_compiled(objective: Objective, model: nn.Module, by_rows: bool) -> bool:
    """Whether `compiled_estimate` compiles anything."""
    whole = objective.weights_per_task or (by_rows and not objective.evaluates_model)
    return whole or isinstance(model, MultiTask)


def compiled_estimate(objective: Objective, model: nn.Module, by_rows: bool) -> BatchEstimate:
    """The estimate on batches of rows or tasks, with compiled kernels: all, or those of the network."""
    if objective.weights_per_task:
        return CompiledBackward(objective, model)
    network: Any = model
    if by_rows and not objective.evaluates_model:
        network = torch.compile(model, dynamic=False, options=SAME_RANDOM_NUMBERS)
    elif isinstance(model, MultiTask):  # what is done with its features depends on the objective or the tasks
        network = compiled_encoder(model)
    return partial(objective.backward, network)


def compiled_encoder(model: MultiTask) -> MultiTask:
    """The same model, with its own parameters, whose encoder is compiled."""
    network = copy.copy(model)
    encoder: Any = torch.compile(model.encoder, dynamic=False, options=SAME_RANDOM_NUMBERS)
    network._modules = {**model._modules, "encoder": encoder}
    return network
