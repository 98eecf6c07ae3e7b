"""Objectives with variables per positive as problems, in which each positive is a block."""

from functools import partial

import torch
from torch import Tensor

from mmb.auc.as_problem.parts import One, Score, own_value, scores_of
from mmb.auc.average_precision import AveragePrecision
from mmb.auc.baselines import SOPA, SOPAs
from mmb.auc.parts.pairs import pair_loss
from mmb.auc.parts.per_positive import PerPositive
from mmb.problem import Problem
from mmb.trees import Tree

PerPositiveStated = SOPA | SOPAs | AveragePrecision


def per_positive_problem(objective: PerPositiveStated, score: Score) -> Problem:
    """The statement; without the weak pull on the shift of logits."""
    num_blocks = len(variables(objective).value)
    if isinstance(objective, SOPA):
        return Problem(partial(_sopa, objective, score), None, num_blocks)
    if isinstance(objective, SOPAs):
        return Problem(partial(_sopas, objective), partial(_sopas_lower, objective, score), num_blocks)
    return Problem(_precision, partial(_precision_lower, objective, score), num_blocks)


def variables(objective: PerPositiveStated) -> PerPositive:
    """The variables of the positives."""
    if isinstance(objective, SOPA):
        return objective.level
    return objective.log_mean if isinstance(objective, SOPAs) else objective.above


def _pair_losses(objective: PerPositiveStated, score: Score, x: Tree, batch: One) -> Tensor:
    """Loss of one positive against every row of its task, `[r]`."""
    h = scores_of(objective, score, x, batch)
    surrogate = objective.surrogate if isinstance(objective, AveragePrecision) else "squared_hinge"
    return pair_loss(objective.margin - own_value(h, batch["row"]) + h, surrogate)[0]


def _sopa(objective: SOPA, score: Score, x: Tree, dual: None, lower: None, batch: One) -> Tensor:
    """Its variables are part of `x` here, as `x["level"]`."""
    level = own_value(x["level"], batch["slot"])
    excess = (_pair_losses(objective, score, x, batch) - level).clamp(min=0)
    return (batch["negative"] * (level + excess / objective.max_fpr)).sum()


def _sopas(objective: SOPAs, x: Tree, dual: None, lower: Tensor, batch: One) -> Tensor:
    return objective.temperature * lower.log()


def _sopas_lower(objective: SOPAs, score: Score, x: Tree, lower: Tensor, batch: One) -> Tensor:
    """Half the squared distance to the inner mean: its Hessian is one, its SGD step the moving average."""
    loss = _pair_losses(objective, score, x, batch)
    mean = (batch["negative"] * torch.exp(loss / objective.temperature)).sum()
    return (lower - mean) ** 2 / 2


def _precision(x: Tree, dual: None, lower: Tensor, batch: One) -> Tensor:
    """One minus the precision, of the tracked `P` and `Q`."""
    return lower[1] / lower.sum()


def _precision_lower(objective: AveragePrecision, score: Score, x: Tree, lower: Tensor, batch: One) -> Tensor:
    """Half the squared distance to `P` and `Q` of the batch."""
    loss = _pair_losses(objective, score, x, batch)
    positives, negatives = (
        own_value(count, batch["task"]) for count in (objective.positives, objective.negatives)
    )
    itself = torch.arange(len(loss)) == batch["row"]
    weight = torch.where(itself, 1 / positives, batch["positive"])
    above = torch.stack([positives * (weight * loss).sum(), negatives * (batch["negative"] * loss).sum()])
    return ((lower - above / (positives + negatives)) ** 2).sum() / 2
