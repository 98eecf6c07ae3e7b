"""Objectives with variables per positive as problems, in which each positive is a block."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from mmb.auc.as_problem.parts import One, Score, own_value, scores_of
from mmb.auc.average_precision import AveragePrecision
from mmb.auc.baselines import SOPA, STACO, SOPAs
from mmb.auc.ndcg import NDCG
from mmb.auc.parts.pairs import pair_loss
from mmb.auc.parts.per_positive import PerPositive
from mmb.problem import Problem
from mmb.trees import Tree

PerPositiveStated = SOPA | SOPAs | STACO | AveragePrecision | NDCG


def per_positive_problem(objective: PerPositiveStated, score: Score) -> Problem:
    """The statement; without the weak pull on the shift of logits."""
    num_blocks = len(variables(objective).value)
    if isinstance(objective, SOPA):
        return Problem(partial(_sopa, objective, score), None, num_blocks)
    if isinstance(objective, STACO):
        return Problem(partial(_staco, objective, score), None, num_blocks, _unit_interval)
    if isinstance(objective, SOPAs):
        return Problem(partial(_sopas, objective), partial(_sopas_lower, objective, score), num_blocks)
    if isinstance(objective, AveragePrecision):
        return Problem(_precision, partial(_precision_lower, objective, score), num_blocks)
    return Problem(partial(_ndcg, objective, score), partial(_ndcg_lower, objective, score), num_blocks)


def variables(objective: PerPositiveStated) -> PerPositive:
    """The variables of the positives."""
    if isinstance(objective, SOPA):
        return objective.level
    if isinstance(objective, STACO):
        return objective.own
    if isinstance(objective, NDCG):
        return objective.rank_share
    return objective.log_mean if isinstance(objective, SOPAs) else objective.above


def _pair_losses(objective: PerPositiveStated, score: Score, x: Tree, batch: One) -> Tensor:
    """Loss of one positive against every row of its task, `[r]`."""
    h = scores_of(objective, score, x, batch)
    surrogate = "squared_hinge" if isinstance(objective, SOPA | SOPAs | STACO) else objective.surrogate
    return pair_loss(objective.margin - own_value(h, batch["row"]) + h, surrogate)[0]


def _sopa(objective: SOPA, score: Score, x: Tree, dual: None, lower: None, batch: One) -> Tensor:
    """Its variables are part of `x` here, as `x["level"]`."""
    level = own_value(x["level"], batch["slot"])
    excess = (_pair_losses(objective, score, x, batch) - level).clamp(min=0)
    return (batch["negative"] * (level + excess / objective.max_fpr)).sum()


def _staco(objective: STACO, score: Score, x: Tree, dual: Tensor, lower: None, batch: One) -> Tensor:
    """Thresholds are part of `x`: `x["own"]` of the positives, `x["level"]` of the tasks."""
    own, level = own_value(x["own"], batch["slot"]), own_value(x["level"], batch["task"])
    excess = (_pair_losses(objective, score, x, batch) - own).clamp(min=0)
    of_negatives = dual * (own + excess / objective.max_fpr - level) / objective.worst + level
    return (batch["negative"] * of_negatives).sum()


def _unit_interval(dual: Tensor) -> Tensor:
    return dual.clamp(0, 1)


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


def _above(objective: AveragePrecision | NDCG, score: Score, x: Tree, batch: One) -> Tensor:
    """The losses of the positives and of the negatives above a positive, as shares of the labels, `[2]`."""
    loss = _pair_losses(objective, score, x, batch)
    positives, negatives = (
        own_value(count, batch["task"]) for count in (objective.positives, objective.negatives)
    )
    itself = torch.arange(len(loss)) == batch["row"]
    weight = torch.where(itself, 1 / positives, batch["positive"])
    above = torch.stack([positives * (weight * loss).sum(), negatives * (batch["negative"] * loss).sum()])
    return above / (positives + negatives)


def _precision_lower(objective: AveragePrecision, score: Score, x: Tree, lower: Tensor, batch: One) -> Tensor:
    """Half the squared distance to `P` and `Q` of the batch."""
    return ((lower - _above(objective, score, x, batch)) ** 2).sum() / 2


def _ndcg(objective: NDCG, score: Score, x: Tree, dual: None, lower: Tensor, batch: One) -> Tensor:
    """The lower variable is `u`, and with `k` also the threshold."""
    labeled = own_value(objective.positives + objective.negatives, batch["task"])
    gain = own_value(objective.per_ideal, batch["task"]) / torch.log2(1 + labeled * lower[0])
    if objective.top is None:
        return 1 - gain
    z = own_value(score(x["model"], batch["inputs"], batch["task"]), batch["row"])
    psi = torch.sigmoid((z - lower[1]) / objective.top.temperature)
    return 1 - gain * (psi if objective.gradient == "full" else psi.detach())


def _ndcg_lower(objective: NDCG, score: Score, x: Tree, lower: Tensor, batch: One) -> Tensor:
    share = _above(objective, score, x, batch).sum() / objective.own_loss
    value = (lower[0] - share) ** 2 / 2
    top = objective.top
    if top is None:
        return value
    positives, negatives = (
        own_value(count, batch["task"]) for count in (objective.positives, objective.negatives)
    )
    weight = (positives * batch["positive"] + negatives * batch["negative"]) / (positives + negatives)
    z, rate = score(x["model"], batch["inputs"], batch["task"]), own_value(top.own_rates, batch["task"])
    soft = top.tau1 * functional.softplus((z - lower[1]) / top.tau1)
    return value + (weight * (rate * lower[1] + soft)).sum() + top.tau2 / 2 * lower[1] ** 2
