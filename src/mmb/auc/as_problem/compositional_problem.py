"""Compositional training stated as `mmb.Problem`: the same mathematics, for the general solver."""

from functools import partial

import torch
from torch import Tensor
from torch.func import functional_call, grad
from torch.nn import functional

from mmb.auc.as_problem.parts import One, margin_loss, own_value, squashed
from mmb.auc.compositional.heads import HeadCompositionalAUC
from mmb.auc.compositional.whole_network import CompositionalAUC
from mmb.models.multitask import MultiTask
from mmb.problem import Problem
from mmb.projections import nonnegative
from mmb.trees import Tree, tree_map

Compositional = CompositionalAUC | HeadCompositionalAUC


def as_compositional_problem(objective: Compositional, model: MultiTask) -> Problem:
    """State compositional training of a model, whose structure is used, as a problem.

    The shared variable is `{"model": ..., "mean_positive": [m], "mean_negative": [m]}`. The lower variable
    of a block is its copy or offset, as the objective keeps it, by the names of the model's parameters
    (`lower_variables`). The lower Hessian is the identity: solve it with `mmb.Identity`. Batches come from
    `as_blocks`. ValueError if the objective's `inner_lr` follows the batches, since a problem does not.
    """
    if objective.inner_lr is None:
        raise ValueError("inner_lr: got None, which follows the batches; expected a number in a problem")
    upper, lower = partial(_upper, objective, model), partial(_lower, objective, model)
    return Problem(upper, lower, objective.num_tasks, nonnegative())


def lower_variables(objective: Compositional) -> dict[str, Tensor]:
    """The copies or offsets by name, `[m, ...]` each."""
    if isinstance(objective, HeadCompositionalAUC):
        return {"weight": objective.offset[:, :-1], "bias": objective.offset[:, -1]}
    names = [f"encoder.{name}" for name in objective.copies.names] + ["weight", "bias"]
    return dict(zip(names, objective.copies.split(objective.copies.stacked), strict=True))


def _offsets(objective: Compositional) -> bool:
    return isinstance(objective, HeadCompositionalAUC) or objective.copies.kept == "offsets"


def _own_weights(x: Tree, lower: Tree, batch: One) -> Tree:
    """The weights of one task, by the names of its lower variable."""
    model = x["model"]
    return {name: model[name] if "." in name else own_value(model[name], batch["task"]) for name in lower}


def _upper(
    objective: Compositional, model: MultiTask, x: Tree, dual: Tensor, lower: Tree, batch: One
) -> Tensor:
    copy = lower
    if _offsets(objective):
        own = _own_weights(x, lower, batch)
        copy = {name: own[name] + offset for name, offset in lower.items()}
    h = squashed(objective, _logits(model, {**x["model"], **copy}, batch), batch)
    return margin_loss(objective, x, dual, batch, h, torch.ones_like(h))


def _lower(objective: Compositional, model: MultiTask, x: Tree, lower: Tree, batch: One) -> Tensor:
    """Half the squared distance of the copy to the weights after their cross-entropy step."""
    weights = _own_weights(x, lower, batch)
    slope = grad(lambda own: _cross_entropy(objective, _logits(model, {**x["model"], **own}, batch), batch))(
        weights
    )
    if objective.gradient == "first_order":
        slope = tree_map(torch.detach, slope)
    start = tree_map(torch.zeros_like, weights) if _offsets(objective) else weights
    assert objective.inner_lr is not None
    parts = [((lower[name] - (start[name] - objective.inner_lr * slope[name])) ** 2).sum() for name in lower]
    return 0.5 * torch.stack(parts).sum()


def _cross_entropy(objective: Compositional, logits: Tensor, batch: One) -> Tensor:
    """`CE_i`: both classes weigh the same; logits are recentered unless scores are their sigmoid."""
    if objective.transform != "sigmoid":
        logits = logits - own_value(objective.log_odds(), batch["task"])
    positive = (batch["positive"] * functional.softplus(-logits)).sum()
    return 0.5 * (positive + (batch["negative"] * functional.softplus(logits)).sum())


def _logits(model: MultiTask, weights: Tree, batch: One) -> Tensor:
    encoder = {name[len("encoder.") :]: value for name, value in weights.items() if "." in name}
    features = functional_call(model.encoder, encoder, (batch["inputs"],))
    return features @ weights["weight"] + weights["bias"]
