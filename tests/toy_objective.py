"""A new objective as a contributor would write it: one file, one class, one method to implement."""

import torch
from torch.nn import functional

from mmb.auc import Objective


class CenteredLogistic(Objective):
    """Balanced logistic loss about a tracked center of each task's logits."""

    rate_names = ("lr_center",)

    def __init__(self, labels, *, lr_center: float = 0.1, task_weighting: float = 0.0) -> None:
        super().__init__(labels, task_weighting)
        self.lr_center = lr_center
        self.register_buffer("center", torch.zeros_like(self.task_weight))

    def loss(self, entries):
        center = entries.gather(self.center)
        shifted = entries.logits - center
        up = (entries.positive * functional.softplus(-shifted)).sum(0)
        down = (entries.negative * functional.softplus(shifted)).sum(0)
        if self.training:
            mass = entries.positive + entries.negative
            pull = (mass * shifted.detach()).sum(0) / mass.sum(0).clamp(min=1)
            entries.scatter_(self.center, center + self.lr_center * pull)
        return (entries.scale * (up + down)).sum()
