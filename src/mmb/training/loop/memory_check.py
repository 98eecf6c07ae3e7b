"""What block state takes in memory: refused before it is made if it cannot fit, told before training."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch.distributed as dist
from torch import nn

from mmb.auc import Objective
from mmb.auc.compositional.weight_copies import WeightCopies
from mmb.memory import free_bytes, readable_bytes
from mmb.models import MultiTask
from mmb.training.recipes.presets import METHODS
from mmb.training.recipes.recipe import Recipe


def check_room(recipe: Recipe, model: nn.Module) -> None:
    """Refuse weight copies that cannot fit, those of the other processes on this machine counted.

    Every process must call it, before its objective is made: none may take memory before all have looked.

    Args:
        recipe: What is to be trained.
        model: The network, with the heads of this process's tasks.

    Raises:
        NoRoomError: Saying what would fit.
    """
    if not METHODS[recipe.method].own_weights or not isinstance(model, MultiTask):
        return  # the objective tells of a model that is not fit for it
    chosen = recipe.objective
    size = WeightCopies.measure(model, chosen.get("copies_dtype"), chosen.get("copies_device"))
    # torchrun says how many processes share the host; each has a GPU of its own
    size.check(sharers=int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if size.device.type == "cpu" else 1)
    if dist.is_available() and dist.is_initialized():
        dist.barrier()


def report_copies(objective: Objective, note: Callable[[str], None]) -> None:
    """Tell what weight copies take in this process, where the objective has any."""
    for module in objective.modules():
        if isinstance(module, WeightCopies):
            free = free_bytes(module.stacked.device)
            left = "" if free is None else f"; {readable_bytes(free)} are left"
            note(f"{module.footprint} per process{left}")
