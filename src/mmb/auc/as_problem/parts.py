"""What statements of objectives as problems are made of, for one block."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mmb.auc.margin_objective import MarginObjective
from mmb.auc.score_objective import ScoreObjective
from mmb.trees import Tree

Score = Callable[[Tree, Any, Tensor], Tensor]  # score(model, inputs [r, ...], task) -> logits [r]
One = dict[str, Tensor]  # the batch of one block


def own_value(values: Tensor, index: Tensor) -> Tensor:
    """`values[index]` for the number of one block (a scalar tensor), in a form that can be batched."""
    return values.index_select(0, index.reshape(1)).squeeze(0)


def squashed(objective: ScoreObjective, logits: Tensor, batch: One) -> Tensor:
    """Scores `h` of one task's rows, from their logits."""
    if objective.transform == "logit":
        return logits
    if objective.transform == "recentered":
        logits = logits - own_value(objective.log_odds(), batch["task"])
    return torch.sigmoid(logits)


def scores_of(objective: ScoreObjective, score: Score, x: Tree, batch: One) -> Tensor:
    """Scores `h` of one task's rows, from the shared variable."""
    return squashed(objective, score(x["model"], batch["inputs"], batch["task"]), batch)


def margin_loss(
    objective: MarginObjective, x: Tree, dual: Tensor, batch: One, h: Tensor, select: Tensor
) -> Tensor:
    """`E+[(h-a)^2] + E-[s (h-b)^2] + 2 alpha (c + E-[s h] - E+[h]) - alpha^2`, see `MarginObjective`."""
    a, b = own_value(x["mean_positive"], batch["task"]), own_value(x["mean_negative"], batch["task"])
    positive, negative = batch["positive"], batch["negative"]
    mean_positive = a.detach() + (positive * (h - a.detach())).sum()
    mean_negative = b.detach() + (negative * select * (h - b.detach())).sum()
    variance = (positive * (h - a) ** 2).sum() + (negative * select * (h - b) ** 2).sum()
    return variance + 2 * dual * (objective.margin + mean_negative - mean_positive) - dual**2


def held(objective: Any, logits: Tensor, batch: One) -> Tensor:
    """The pull of `hold_shift`."""
    from_center = logits - own_value(objective.log_odds(), batch["task"])
    offset = 0.5 * ((batch["positive"] + batch["negative"]) * from_center).sum()
    return 0.5 * objective.shift_pull * offset**2
