"""A network, what it is trained for, and the loop that trains it in memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmb.auc import (
    CrossEntropy,
    Labels,
    MinMaxAUC,
    Objective,
    PairwisePartialAUC,
    PartialAUC,
    RichRowSampler,
    RowDraw,
    Sum,
)
from mmb.estimators.inputs import Rows
from mmb.estimators.model_mix import ModelMix, PiecewiseLinear
from mmb.schedules import half_cosine

_OfLabels = Callable[[Labels, float], Objective]  # of labels and the largest false positive rate
OBJECTIVES: dict[str, _OfLabels] = {
    "ce": lambda labels, _: CrossEntropy(labels),
    "auc": lambda labels, _: _auc(labels),
    "pauc": lambda labels, max_fpr: PartialAUC(labels, max_fpr=max_fpr, anchor=0.0),
    "pauc-pairwise": lambda labels, max_fpr: PairwisePartialAUC(labels, max_fpr=max_fpr, anchor=0.0),
    "ce+auc": lambda labels, _: Sum([(1.0, CrossEntropy(labels)), (0.5, _auc(labels))]),
}
FRESH = "fresh"
"""Partial AUC from random weights, which works best for a wider range than the one that is measured."""
_WIDER = 3.0
_RICH = 0.5  # share of the rows of a step that are positives of some task


class Part(NamedTuple):
    """Some rows of the data: inputs, labels (int8 `[n, m]`, -1 for missing) and weights `[n]`."""

    rows: Rows
    labels: Tensor
    weights: Tensor

    def only(self, chosen: Tensor) -> Part:
        """The rows where the bool `[n]` is true."""
        return Part(self.rows.only(chosen), self.labels[chosen], self.weights[chosen])

    def offset(self, chosen: Tensor) -> Tensor | None:
        """Mean input of some rows minus that of all rows, `[d]`; None if it does not matter.

        Dense inputs are centered over all rows. So the rows that a network is trained without lie opposite to
        those it is trained on, unlike new rows. That does not change their order, and hardly matters if there
        are many rows; but with more columns than rows, logits are far off.
        """
        if self.rows.sparse or not bool(chosen.any()):
            return None
        return self.rows.only(chosen).mean(self.weights[chosen]) - self.rows.mean(self.weights)


NetworkState = tuple[dict[str, Any], dict[str, Any], int]
"""Weights, the optimizer's averages, steps done."""


class Network:
    """Models of several kinds that are trained together, for one objective after another.

    Objectives use the share of positives among all labels seen so far (see `see`), not among those of one
    call, so a network can be trained on one part of the data after another. The options are those of the
    classifier; some of the models see the inputs through the encoding.
    """

    def __init__(
        self,
        num_inputs: int,
        num_tasks: int,
        *,
        hidden: Sequence[int],
        dropout: float,
        objectives: Sequence[str],
        max_fpr: float,
        alpha: float,
        encoding: PiecewiseLinear,
    ) -> None:
        self.model = ModelMix(num_inputs, hidden, num_tasks, dropout, encoding)
        self.model.float()  # whatever the default dtype
        self.kinds = len(self.model.models)
        none = torch.zeros(self.kinds * num_tasks)
        unseen = Labels.of_counts(none, none, num_rows=0)  # the true counts come with `see`
        self.objectives = {name: _objective(name, unseen, max_fpr).float() for name in objectives}
        self.mass = torch.zeros(2, num_tasks, dtype=torch.float64)  # of the negatives, of the positives
        self.num_rows = 0.0
        self.alpha, self.steps_done = alpha, 0
        self.placed: str | None = None  # the objective whose state follows the weights
        groups = [
            {"params": list(part.parameters())} for part in (*self.model.models, *self.objectives.values())
        ]
        self.optimizer = torch.optim.Adam([group for group in groups if group["params"]], fused=True)

    @property
    def usable(self) -> Tensor:
        """Bool `[m]`: tasks of which both classes have been seen."""
        return (self.mass > 0).all(0)

    def see(self, labels: Tensor, weights: Tensor) -> None:
        """Add the labels `[n, m]` of rows with weights `[n]` to those that give the class rates."""
        self.num_rows += float(weights.sum())
        self.mass += class_mass(labels, weights)
        for objective in self.objectives.values():
            negatives, positives = self.mass.repeat(1, self.kinds)
            objective.set_class_counts(positives, negatives, self.num_rows)
        # the loss is a mean over kinds and tasks of means over labels: the penalty fades as labels are added
        share = self.alpha / (self.kinds * float(self.mass.sum()))
        for group, penalty in zip(self.optimizer.param_groups, self.model.penalties, strict=False):
            group["weight_decay"] = penalty * share

    def place_objective(self, name: str, part: Part) -> None:
        """Set an objective's means, duals and thresholds to those of the current weights."""
        scores = part.rows.scores(self.model).float()
        self.objectives[name].warm_start(scores, part.labels.repeat(1, self.kinds))
        self.placed = name

    def state(self) -> NetworkState:
        """What to go back to with `restore`: weights, the optimizer's averages, steps done."""
        model, optimizer = self.model.state_dict(), self.optimizer.state_dict()
        return copy.deepcopy(model), copy.deepcopy(optimizer), self.steps_done

    def restore(self, state: NetworkState) -> None:
        """Go back to an earlier `state`."""
        model, optimizer, self.steps_done = state
        self.placed = None
        self.model.float()  # as the optimizer's averages, which take the precision of the weights
        self.optimizer.load_state_dict(copy.deepcopy(optimizer))
        self.model.double().load_state_dict(model)

    def train(
        self,
        part: Part,
        name: str,
        *,
        steps: int,
        batch_size: int,
        lr: float,
        generator: torch.Generator,
        decay: bool = False,
    ) -> None:
        """Train on some rows for the objective of this name.

        With `decay`, the step size rises at the start and falls to zero, by half a cosine.
        """
        self.model.float().train()
        for step, draw in enumerate(islice(_draws(part.labels, batch_size, generator), steps)):
            for group in self.optimizer.param_groups:
                group["lr"] = lr * (_one_cycle((step + 1) / steps) if decay else 1.0)
            importance = part.weights[draw.rows] * (1.0 if draw.weights is None else draw.weights)
            labels = part.labels[draw.rows].repeat(1, self.kinds)
            batch = replace(draw, weights=importance).with_inputs(part.rows.take(draw.rows), labels)
            self.optimizer.zero_grad()
            self.objectives[name].backward(self.model, batch)
            self.optimizer.step()
            self.steps_done += 1
        self.model.double().eval()  # so that the number of rows does not change predictions


def _objective(name: str, labels: Labels, max_fpr: float) -> Objective:
    """The objective of a name."""
    if name == FRESH:
        return PartialAUC(labels, max_fpr=min(1.0, _WIDER * max_fpr), anchor=0.0)
    return OBJECTIVES[name](labels, max_fpr)


def _auc(labels: Labels) -> MinMaxAUC:
    """For the logits of rare tasks, which cross-entropy has left far below zero."""
    return MinMaxAUC(labels, transform="recentered", margin=4.0, anchor=0.0)


def class_mass(labels: Tensor, weights: Tensor) -> Tensor:
    """Weight of the negatives and of the positives of each task, float64 `[2, m]`."""
    return torch.stack([((labels == value) * weights.double().unsqueeze(1)).sum(0) for value in (0, 1)])


def both_classes(labels: Tensor) -> Tensor:
    """Bool `[m]`: tasks with a positive and a negative among the labels `[n, m]`."""
    return (labels == 1).any(0) & (labels == 0).any(0)


def _draws(labels: Tensor, batch_size: int, generator: torch.Generator) -> Iterable[RowDraw]:
    """Endless draws: half of their rows are positives of some task, with importance weights."""
    usable = both_classes(labels)
    size = min(batch_size, len(labels))
    if bool(usable.any()):
        sampler = RichRowSampler(labels[:, usable], size, _RICH, generator=generator)
        return chain.from_iterable(repeat(sampler))
    return (RowDraw(torch.randperm(len(labels), generator=generator)[:size]) for _ in repeat(None))


def _one_cycle(share: float) -> float:
    """Factor of the step size: a rise over the first twentieth, times half a cosine down to zero."""
    return min(1.0, share / 0.05) * half_cosine(share)
