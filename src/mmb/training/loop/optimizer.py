"""The optimizer that a recipe asks for."""

from typing import Any

import torch
from torch import nn

from mmb.training.recipes.recipe import OptimizerSettings


def encoder_of(model: nn.Module) -> nn.Module:
    """The part `encoder` of a network."""
    found = getattr(model, "encoder", None)
    if not isinstance(found, nn.Module):
        raise ValueError(
            f"optimizer.lr_encoder: {type(model).__name__} has no part `encoder`; give your network one, as "
            "mmb.models.MultiTask(encoder, num_features, num_tasks) has"
        )
    return found


def make_optimizer(
    settings: OptimizerSettings, model: nn.Module, objective: nn.Module, captured: bool = False
) -> torch.optim.Optimizer:
    """The optimizer of a network, with weight decay, and of an objective's own variables, without.

    An encoder with its own step size is a separate group. On a GPU, one kernel moves many tensors; if steps
    are `captured` in a CUDA graph, step sizes are tensors.
    """
    device = next(model.parameters()).device
    fused = True if device.type == "cuda" else None

    def rate(value: float) -> Any:
        return torch.tensor(value, device=device) if captured else value

    lr, decay = rate(settings.lr), settings.weight_decay
    encoder = {id(p) for p in encoder_of(model).parameters()} if settings.lr_encoder else set()
    trained = [p for p in model.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in trained if id(p) not in encoder], "weight_decay": decay}
    ]
    if encoder:
        moved = [p for p in trained if id(p) in encoder]
        own_lr = rate(settings.lr_encoder or 0.0)
        groups.append({"params": moved, "weight_decay": decay, "lr": own_lr, "part": "encoder"})
    if own := list(objective.parameters()):
        groups.append({"params": own, "weight_decay": 0.0})
    if settings.name in ("sgd", "momentum"):
        # dampening = momentum makes it the moving average z <- m z + (1 - m) Delta of the paper, m = 1 - b0;
        # torch starts it at the first Delta, as the paper's analysis does.
        dampening = settings.momentum if settings.name == "momentum" else 0.0
        return torch.optim.SGD(groups, lr, settings.momentum, dampening, fused=fused)
    kind = torch.optim.AdamW if settings.name == "adamw" else torch.optim.Adam
    return kind(groups, lr, settings.betas, capturable=captured, fused=fused)
