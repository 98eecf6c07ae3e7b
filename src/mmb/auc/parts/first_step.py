"""Whether an optimizer moves an objective's own parameters: looked at when it takes its first step."""

import gc
import warnings
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary, ref

from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

# Objectives that have filled gradients, before the optimizer of their model has taken a step.
_waiting: WeakKeyDictionary[nn.Module, ref[nn.Module]] = WeakKeyDictionary()


def watch_first_step(objective: nn.Module, model: nn.Module) -> None:
    """Warn in the first step that an optimizer of the model takes, if none has the objective's parameters."""
    _listen()
    _waiting[objective] = ref(model)


@cache
def _listen() -> None:
    register_optimizer_step_pre_hook(_look)


def _look(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    if not _waiting:
        return
    moved = _parameters(optimizer)
    for objective, reference in list(_waiting.items()):
        model, own = reference(), {id(parameter) for parameter in objective.parameters()}
        if model is not None and moved.isdisjoint({*own, *map(id, model.parameters())}):
            continue  # another model's
        del _waiting[objective]
        if model is None or not moved.isdisjoint(own):
            continue
        # They may have a separate optimizer. Looking for it takes time, but only where it is needed.
        others = (one for one in gc.get_objects() if issubclass(type(one), Optimizer))
        if all(_parameters(one).isdisjoint(own) for one in others):
            warnings.warn(
                f"the optimizer does not move the parameters of {type(objective).__name__} itself: give it "
                "[*model.parameters(), *objective.parameters()]",
                stacklevel=3,
            )


def _parameters(optimizer: Optimizer) -> set[int]:
    groups = getattr(optimizer, "param_groups", ())
    return {id(parameter) for group in groups for parameter in group["params"]}
