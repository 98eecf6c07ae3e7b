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


def compiled_estimate(objective: Objective, model: nn.Module, by_rows: bool) -> BatchEstimate:
    """The estimate on batches of rows or tasks, with compiled kernels: of the network and the objective."""
    torch.compiler.reset()  # it gives up after some variants of a function, and earlier runs would count
    if objective.weights_per_task:
        return CompiledBackward(objective, model)
    network: Any = model
    if by_rows and not objective.evaluates_model:
        network = torch.compile(model, dynamic=False, options=SAME_RANDOM_NUMBERS)
    elif isinstance(model, MultiTask):  # what is done with its features depends on the objective or the tasks
        network = compiled_encoder(model)
    if objective.evaluates_model:
        return partial(objective.backward, network)
    measure = torch.compile(objective.measure, dynamic=False)

    def estimate(batch: Batch) -> dict[str, Tensor]:
        objective.measure = measure  # type: ignore[method-assign]  # here alone: other batches differ in shape
        try:
            return objective.backward(network, batch)
        finally:
            del objective.measure

    return estimate


def compiled_encoder(model: MultiTask) -> MultiTask:
    """The same model, with its own parameters, whose encoder is compiled."""
    network = copy.copy(model)
    encoder: Any = torch.compile(model.encoder, dynamic=False, options=SAME_RANDOM_NUMBERS)
    network._modules = {**model._modules, "encoder": encoder}
    return network
