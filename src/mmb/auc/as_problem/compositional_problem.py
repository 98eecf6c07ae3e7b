"""Compositional training stated as `mmb.Problem`: the same mathematics, for the general solver."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.func import functional_call, grad
from torch.nn import functional

from mmb.auc.as_problem.objective_problems import One, margin_loss, own_value, squashed
from mmb.auc.compositional.heads import HeadCompositionalAUC
from mmb.auc.compositional.whole_network import CompositionalAUC
from mmb.auc.minmax import MinMaxAUC
from mmb.models.multitask import MultiTask
from mmb.problem import Problem
from mmb.projections import nonnegative
from mmb.trees import Tree, tree_map


def as_compositional_problem(objective: CompositionalAUC, model: MultiTask) -> Problem:
    """State compositional training as a problem, whose lower Hessian is the identity.

    The shared variable is `{"model": ..., "mean_positive": [m], "mean_negative": [m]}`; the lower variable
    of a block, a copy or its offset as the objective keeps it, has the names of the model's parameters, with
    the head of its task alone (`lower_variables`). Batches come from `as_blocks`.

    Args:
        objective: The objective.
        model: The model; only its structure is used.

    Returns:
        The problem, to be solved with `mmb.Identity`.
    """
    return Problem(
        partial(_upper, objective, model),
        partial(_lower, objective, model),
        objective.num_tasks,
        nonnegative,
    )


def lower_variables(objective: CompositionalAUC) -> dict[str, Tensor]:
    """The copies by name, `[m, ...]` each."""
    names = [f"encoder.{name}" for name in objective.copies.names] + ["weight", "bias"]
    return dict(zip(names, objective.copies.split(objective.copies.stacked), strict=True))


def as_head_problem(objective: HeadCompositionalAUC, model: MultiTask) -> Problem:
    """The same where the heads alone are the lower variable, as offsets `{"weight": [d], "bias": []}`.

    Args:
        objective: The objective.
        model: The model; only its structure is used.

    Returns:
        The problem, to be solved with `mmb.Identity`.
    """
    return Problem(
        partial(_heads_upper, objective, model),
        partial(_heads_lower, objective, model),
        objective.num_tasks,
        nonnegative,
    )


def _heads_upper(
    objective: HeadCompositionalAUC, model: MultiTask, x: Tree, dual: Tensor, lower: Tree, batch: One
) -> Tensor:
    moved = {name: own_value(x["model"][name], batch["task"]) + lower[name] for name in lower}
    h = squashed(objective, _logits(model, {**x["model"], **moved}, batch), batch)
    return margin_loss(objective, x, dual, batch, h, torch.ones_like(h))


def _heads_lower(
    objective: HeadCompositionalAUC, model: MultiTask, x: Tree, lower: Tree, batch: One
) -> Tensor:
    """Half the squared distance of the offset to the cross-entropy step of the head."""
    own = {name: own_value(x["model"][name], batch["task"]) for name in lower}
    slope = grad(
        lambda head: _cross_entropy(objective, _logits(model, {**x["model"], **head}, batch), batch)
    )(own)
    if objective.gradient == "first_order":
        slope = tree_map(torch.detach, slope)
    return 0.5 * torch.stack([((lower[n] + objective.inner_lr * slope[n]) ** 2).sum() for n in lower]).sum()


def _cross_entropy(objective: MinMaxAUC, logits: Tensor, batch: One) -> Tensor:
    """`CE_i`: both classes alike, of logits that are recentered unless scores are their sigmoid."""
    if objective.transform != "sigmoid":
        logits = logits - own_value(objective.log_odds(), batch["task"])
    positive = (batch["positive"] * functional.softplus(-logits)).sum()
    return 0.5 * (positive + (batch["negative"] * functional.softplus(logits)).sum())


def _logits(model: MultiTask, weights: Tree, batch: One) -> Tensor:
    encoder = {name[len("encoder.") :]: value for name, value in weights.items() if "." in name}
    features = functional_call(model.encoder, encoder, (batch["inputs"],))
    logits: Tensor = features @ weights["weight"] + weights["bias"]
    return logits


def _own_weights(x: Tree, lower: Tree, batch: One) -> Tree:
    """The weights `w_i` of one task."""
    return {
        name: x["model"][name] if "." in name else own_value(x["model"][name], batch["task"])
        for name in lower
    }


def _upper(
    objective: CompositionalAUC, model: MultiTask, x: Tree, dual: Tensor, lower: Tree, batch: One
) -> Tensor:
    copy = lower
    if objective.copies.offsets:
        own = _own_weights(x, lower, batch)
        copy = {name: own[name] + offset for name, offset in lower.items()}
    h = squashed(objective, _logits(model, copy, batch), batch)
    return margin_loss(objective, x, dual, batch, h, torch.ones_like(h))


def _lower(objective: CompositionalAUC, model: MultiTask, x: Tree, lower: Tree, batch: One) -> Tensor:
    """Half the squared distance of the copy to the weights after their cross-entropy step."""
    weights = _own_weights(x, lower, batch)
    slope = grad(lambda own: _cross_entropy(objective, _logits(model, own, batch), batch))(weights)
    if objective.gradient == "first_order":
        slope = tree_map(torch.detach, slope)
    start = tree_map(torch.zeros_like, weights) if objective.copies.offsets else weights
    parts = [((lower[name] - (start[name] - objective.inner_lr * slope[name])) ** 2).sum() for name in lower]
    return 0.5 * torch.stack(parts).sum()
