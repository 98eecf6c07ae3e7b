"""The objectives stated as `mmb.Problem`: the same mathematics, for the general solver.

Each statement is its formula, for one block: a task, or a positive label where positives have variables. Use
them to run another hypergradient estimator on an AUC problem, and to check the objectives, whose gradients
are derived by hand. The shared variable is `{"model": ..., "mean_positive": [m], "mean_negative": [m]}`, with
means only for margin losses.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from mmb.auc.as_problem.parts import One, Score, held, margin_loss, own_value, scores_of, squashed
from mmb.auc.as_problem.per_positive_problems import PerPositiveStated, per_positive_problem, variables
from mmb.auc.baselines import PAUCI, CrossEntropy, Focal, MiniBatchPartialAUC
from mmb.auc.baselines.minibatch_partial import top_part
from mmb.auc.batches import Batch
from mmb.auc.constrained_recall import ConstrainedRecall
from mmb.auc.minmax import MinMaxAUC
from mmb.auc.objective import Objective
from mmb.auc.pairwise import PairwisePartialAUC
from mmb.auc.partial import PartialAUC
from mmb.auc.parts.pairs import Pairs, pair_loss
from mmb.auc.parts.soft_quantiles import SoftQuantiles
from mmb.auc.recall import FPRAtRecall, RecallAtFPR
from mmb.auc.two_way import TwoWayPartialAUC
from mmb.problem import Problem
from mmb.projections import nonnegative
from mmb.trees import Tree, tree_map

Selecting = PartialAUC | PairwisePartialAUC
Tracked = Selecting | RecallAtFPR | FPRAtRecall


class Blocks(NamedTuple):
    """A batch as `mmb.Solver.step` takes it.

    Attributes:
        blocks: The sampled blocks, `[k]`.
        batch: Their batches, for both levels.
        weights: Their weights in the estimate, `[k]`.
    """

    blocks: Tensor
    batch: One
    weights: Tensor


def as_problem(objective: Objective, score: Score) -> Problem:
    """State an objective (any but compositional training) as a problem, whose batches come from `as_blocks`.

    Objectives with variables per positive are stated without the weak pull on the shift of logits.

    `score(model, inputs, task)` is a pure function: the logits `[r]` of one task on its rows.
    """
    if isinstance(objective, PerPositiveStated):
        return per_positive_problem(objective, score)
    if type(objective) not in _UPPER:
        raise TypeError(f"no statement as a problem for {type(objective).__name__}")
    upper = partial(_UPPER[type(objective)], objective, score)
    lower = None
    if isinstance(objective, Tracked):
        lower = partial(_quantile, objective, score)
    projected = isinstance(objective, MinMaxAUC | ConstrainedRecall | PAUCI)
    return Problem(upper, lower, objective.num_tasks, nonnegative() if projected else None)


def as_blocks(objective: Objective, batch: Batch) -> Blocks:
    """Turn a batch into the arguments of the general solver; every task gets a view of dense inputs."""
    tasks = batch.tasks
    like = torch.zeros(batch.labels.shape, dtype=objective.task_weight.dtype, device=batch.labels.device)
    entries = objective.entries(like, batch.labels, tasks, batch.weights, batch.rows)
    chosen = (entries.scale > 0).nonzero().flatten()  # columns
    inputs = batch.inputs
    if tasks is None:
        inputs = tree_map(lambda leaf: leaf.expand(entries.scale.numel(), *leaf.shape), inputs)
    found: dict[str, Any] = {
        "inputs": inputs,
        "positive": entries.positive.T,
        "negative": entries.negative.T,
        "task": torch.arange(objective.num_tasks) if tasks is None else tasks,
    }
    if not isinstance(objective, PerPositiveStated):
        columns, blocks, share = chosen, found["task"][chosen], entries.scale[chosen]
        found = tree_map(lambda leaf: leaf[columns], found)
    else:
        pairs = Pairs.of(entries)
        columns, blocks = pairs.columns, variables(objective).find(entries, pairs)
        share = pairs.weight * entries.scale[columns]
        found = {**tree_map(lambda leaf: leaf[columns], found), "row": pairs.rows, "slot": blocks}
    return Blocks(blocks, found, share * len(blocks))


def _minmax(objective: MinMaxAUC, score: Score, x: Tree, dual: Tensor, lower: None, batch: One) -> Tensor:
    h = scores_of(objective, score, x, batch)
    return margin_loss(objective, x, dual, batch, h, torch.ones_like(h))


def _select(objective: Selecting, threshold: SoftQuantiles, z: Tensor, value: Tensor) -> Tensor:
    """`s(z)` for thresholds `value` `[t]`, held fixed if the gradient is practical."""
    phi = torch.sigmoid((z - value.unsqueeze(1)) / threshold.temperature)  # [t, r]
    select = (phi[0] if len(value) == 1 else phi[0] - phi[1]) * threshold.per_width
    return select.detach() if objective.gradient == "practical" else select


def _cut(objective: Tracked, score: Score, x: Tree, batch: One) -> Tensor:
    """The scores `z` that the thresholds cut."""
    logits = score(x["model"], batch["inputs"], batch["task"])
    if isinstance(objective, PairwisePartialAUC):
        return logits / own_value(objective.unit, batch["task"])
    unit = isinstance(objective, PartialAUC) and objective.transform == "sigmoid"
    return torch.sigmoid(logits) if unit else logits


def _soft_quantile(threshold: SoftQuantiles, z: Tensor, lower: Tensor, batch: One) -> Tensor:
    """`g` of `SoftQuantiles`, summed over the thresholds of a task."""
    soft = threshold.tau1 * functional.softplus((z - lower.unsqueeze(1)) / threshold.tau1)  # [t, r]
    mean = (batch["negative"] * (threshold.rates * lower.unsqueeze(1) + soft)).sum()
    return mean + threshold.tau2 / 2 * (lower**2).sum()


def _quantile(objective: Tracked, score: Score, x: Tree, lower: Tensor, batch: One) -> Tensor:
    """The lower problem of a task: that of the positives, where they have one, has negated scores."""
    z = _cut(objective, score, x, batch)
    mirrored = {**batch, "negative": batch["positive"]}
    if isinstance(objective, FPRAtRecall):
        return _soft_quantile(objective.tracked_positive, -z, lower, mirrored)
    if not isinstance(objective, TwoWayPartialAUC):
        return _soft_quantile(objective.tracked, z, lower, batch)
    of_positives = _soft_quantile(objective.tracked_positive, -z, lower[1:], mirrored)
    return _soft_quantile(objective.tracked, z, lower[:1], batch) + of_positives


def _two_way(
    objective: TwoWayPartialAUC, score: Score, x: Tree, dual: Tensor, lower: Tensor, batch: One
) -> Tensor:
    z = _cut(objective, score, x, batch)
    negatives = _select(objective, objective.tracked, z, lower[:1])
    positives = _select(objective, objective.tracked_positive, -z, lower[1:])
    h = squashed(objective, z, batch) if objective.transform == "recentered" else z
    batch = {**batch, "positive": batch["positive"] * positives}
    return margin_loss(objective, x, dual, batch, h, negatives)


def _partial(objective: PartialAUC, score: Score, x: Tree, dual: Tensor, lower: Tensor, batch: One) -> Tensor:
    z = _cut(objective, score, x, batch)
    select = _select(objective, objective.tracked, z, lower)
    h = squashed(objective, z, batch) if objective.transform == "recentered" else z
    return margin_loss(objective, x, dual, batch, h, select)


def _pairwise(
    objective: PairwisePartialAUC, score: Score, x: Tree, dual: None, lower: Tensor, batch: One
) -> Tensor:
    z = _cut(objective, score, x, batch)
    select = _select(objective, objective.tracked, z, lower)
    short = objective.margin - (z.unsqueeze(1) - z)
    loss = functional.softplus(short) if objective.surrogate == "logistic" else short.clamp(min=0) ** 2
    value = batch["positive"] @ loss @ (batch["negative"] * select)
    logits = z * own_value(objective.unit, batch["task"])
    return value if objective.gradient == "full" else value + held(objective, logits, batch)


def _pauci(objective: PAUCI, score: Score, x: Tree, dual: Tensor, lower: None, batch: One) -> Tensor:
    """Its level is part of `x`, as `x["level"]`; the derivative by the dual is that of `margin_loss`."""
    h = scores_of(objective, score, x, batch)
    b, level = (own_value(x[key], batch["task"]) for key in ("mean_negative", "level"))
    excess = (h - b) ** 2 + 2 * dual.detach() * h - level
    hinge = objective.temperature * functional.softplus(excess / objective.temperature)
    select = (torch.sigmoid(excess / objective.temperature) / objective.max_fpr).detach()
    of_means = margin_loss(objective, x, dual, batch, h, select)
    seen = margin_loss(objective, x, dual.detach(), {**batch, "positive": 0 * h}, h, select)
    unseen = margin_loss(objective, x, dual.detach(), {**batch, "positive": 0 * h}, h, 0 * h)
    of_negatives = (batch["negative"] * (level + hinge / objective.max_fpr)).sum()
    return of_means - seen + unseen + of_negatives


def _recall(objective: RecallAtFPR, score: Score, x: Tree, dual: None, lower: Tensor, batch: One) -> Tensor:
    z = score(x["model"], batch["inputs"], batch["task"])
    loss, _ = pair_loss(objective.margin + lower - z, objective.surrogate)
    return (batch["positive"] * loss).sum() + held(objective, z, batch)


def _fpr(objective: FPRAtRecall, score: Score, x: Tree, dual: None, lower: Tensor, batch: One) -> Tensor:
    """The lower variable is the negated threshold."""
    z = score(x["model"], batch["inputs"], batch["task"])
    loss, _ = pair_loss(objective.margin + lower + z, objective.surrogate)
    return (batch["negative"] * loss).sum() + held(objective, z, batch)


def _constrained(
    objective: ConstrainedRecall, score: Score, x: Tree, dual: Tensor, lower: None, batch: One
) -> Tensor:
    z = score(x["model"], batch["inputs"], batch["task"])
    excess = batch["negative"] * (torch.sigmoid(z / objective.temperature) / objective.fpr - 1)
    return (batch["positive"] * functional.softplus(-z)).sum() + dual * excess.sum()


def _cross_entropy(
    objective: CrossEntropy, score: Score, x: Tree, dual: None, lower: None, batch: One
) -> Tensor:
    logits = score(x["model"], batch["inputs"], batch["task"])
    prior = own_value(objective.prior(), batch["task"])
    positive = (batch["positive"] * functional.softplus(-logits)).sum()
    return prior * positive + (1 - prior) * (batch["negative"] * functional.softplus(logits)).sum()


def _focal(objective: Focal, score: Score, x: Tree, dual: None, lower: None, batch: One) -> Tensor:
    p = torch.sigmoid(score(x["model"], batch["inputs"], batch["task"]))
    prior = own_value(objective.prior(), batch["task"])
    positive = objective.alpha * (batch["positive"] * (1 - p) ** objective.gamma * -torch.log(p)).sum()
    negative = (1 - objective.alpha) * (batch["negative"] * p**objective.gamma * -torch.log1p(-p)).sum()
    return prior * positive + (1 - prior) * negative


def _minibatch(
    objective: MiniBatchPartialAUC, score: Score, x: Tree, dual: None, lower: None, batch: One
) -> Tensor:
    h = scores_of(objective, score, x, batch)
    share = own_value(objective.current_share, batch["task"]) if objective.anneal else objective.max_fpr
    top = top_part(h.detach().unsqueeze(1), batch["negative"].unsqueeze(1), share).squeeze(1)
    tiny = torch.finfo(h.dtype).tiny
    positive, top = (w / w.sum().clamp(min=tiny) for w in (batch["positive"], top))
    value = positive @ (objective.margin - h.unsqueeze(1) + h) ** 2 @ top
    return value + held(objective, h, batch) if objective.transform == "logit" else value


_UPPER: dict[type[Objective], Callable[..., Tensor]] = {
    MinMaxAUC: _minmax,
    PartialAUC: _partial,
    TwoWayPartialAUC: _two_way,
    PairwisePartialAUC: _pairwise,
    RecallAtFPR: _recall,
    FPRAtRecall: _fpr,
    ConstrainedRecall: _constrained,
    PAUCI: _pauci,
    CrossEntropy: _cross_entropy,
    Focal: _focal,
    MiniBatchPartialAUC: _minibatch,
}
