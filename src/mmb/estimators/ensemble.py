"""A few networks that are averaged, each trained without another share of the rows."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmb.estimators.calibration import fit_log_odds, unseen_logits
from mmb.estimators.inputs import Rows
from mmb.estimators.network import Network, Part, both_classes
from mmb.label_values import MISSING

_ALONE = 4  # a single fold has one share out of this many


class CrossFit(NamedTuple):
    """The outcome of training without each fold in turn."""

    stage: int  # the stage of training whose outcome this is
    values: Tensor  # how good the held-out logits of each fold are
    blend: Tensor  # how these logits weigh the kinds of models, `[kinds, m]`
    logits: Tensor  # of each network, `[networks, n, m]`
    # logits of a row by the network trained without it, its fold moved to the mean: see `Part.offset`
    unseen: Tensor  # `[n, m]`
    # int64 `[n]`: that network; -1 if the others would lack a class, or if there is only one network
    fold: Tensor

    def calibration_labels(self, labels: Tensor) -> Tensor:
        """Labels `[n, m]` to calibrate by: a single network has seen most rows, so those become gaps.

        Where the rows held out lack a class of a task, all of its labels stay.
        """
        if len(self.logits) > 1:
            return labels
        out = self.fold >= 0
        return torch.where(out.unsqueeze(1) | ~both_classes(labels[out]), labels, MISSING)


class Ensemble:
    """Networks whose logits are averaged, their kinds of models weighed for each task by held-out rows."""

    def __init__(self, count: int, seed: int, make: Callable[[], Network]) -> None:
        self.seed, self.networks = seed, []
        for number in range(count):
            with _own_randomness(seed + number):
                self.networks.append(make())
        kinds, num_tasks = self.networks[0].kinds, self.networks[0].mass.shape[1]
        self.blend = torch.full((kinds, num_tasks), 1 / kinds, dtype=torch.float64)

    def scores(self, rows: Rows) -> Tensor:
        """Logits `[n, m]`."""
        return (self.blend * self._by_kind(rows, self.networks)).sum(1)

    def _by_kind(self, rows: Rows, networks: Sequence[Network], offset: Tensor | None = None) -> Tensor:
        """Logits `[n, kinds, m]`, float64, the mean of some networks; of inputs less an offset `[d]`."""
        logits = torch.stack([rows.scores(network.model, offset).double() for network in networks]).mean(0)
        return logits.reshape(len(logits), *self.blend.shape)

    def cross_fit(
        self,
        part: Part,
        stages: Sequence[tuple[int, float]],
        batch_size: int,
        assess: Callable[[Tensor, Tensor], float],
    ) -> CrossFit:
        """Train each network without its fold of the rows, in stages; undo a stage that has not helped.

        A stage is a number of steps and their size: the first is by cross-entropy, a second for the
        objective. The second is kept if its folds gained, on average, at least the standard error of that
        gain; `assess` values their logits by their labels (NaN if it cannot).
        """
        fold = assign_folds(part.labels, len(self.networks), torch.Generator().manual_seed(self.seed))
        folds = [fold == number for number in range(len(self.networks))]
        parts = [part.only(~out) for out in folds]
        offsets = [part.offset(out) for out in folds]
        for network, own in zip(self.networks, parts, strict=True):
            network.see(own.labels, own.weights)
        kept: list[tuple[CrossFit, list[dict[str, Any]]]] = []
        options = {"batch_size": batch_size, "warm_up_steps": stages[0][0], "decay": True}
        for stage, (steps, lr) in enumerate(stages):
            unseen = torch.zeros(len(fold), *self.blend.shape, dtype=torch.float64)
            for number, (own, out) in enumerate(zip(parts, folds, strict=True)):
                self._train(number, own, steps=steps, lr=lr, **options)
                unseen[out] = self._by_kind(part.rows.only(out), self.networks[number : number + 1])
            blend, _ = fit_log_odds(unseen, part.labels, part.weights * (fold >= 0))
            logits = torch.stack(
                [(blend * self._by_kind(part.rows, [network])).sum(1) for network in self.networks]
            )
            found = unseen_logits(logits, fold)
            moved = found.clone()
            for out, offset, network in zip(folds, offsets, self.networks, strict=True):
                moved[out] = (blend * self._by_kind(part.rows.only(out), [network], offset)).sum(1)
            values = torch.tensor(
                [assess(found[out], part.labels[out]) if bool(out.any()) else math.nan for out in folds]
            )
            if not kept or _has_gained(values - kept[0][0].values):
                states = [copy.deepcopy(network.model.state_dict()) for network in self.networks]
                kept = [(CrossFit(stage, values, blend, logits, moved, fold), states)]
        (best, states), *_ = kept
        self.blend = best.blend
        for network, state in zip(self.networks, states, strict=True):
            network.model.load_state_dict(state)
        if best.stage + 1 < len(stages):  # a stage was undone: the objective belongs to discarded weights
            for network, own in zip(self.networks, parts, strict=True):
                network.place_objective(own)
        return best

    def train(self, part: Part, **options: Any) -> None:
        """Train all networks on the same rows, with options of `Network.train`.

        The rows are new to networks that have been trained before, so they weigh the kinds of models first.
        """
        if self.networks[0].steps_done:
            logits = self._by_kind(part.rows, self.networks)
            blend, _ = fit_log_odds(logits, part.labels, part.weights, self.blend)
            self.blend = torch.where(both_classes(part.labels), blend, self.blend)
        for number, network in enumerate(self.networks):
            network.see(part.labels, part.weights)
            self._train(number, part, **options)

    def _train(self, number: int, part: Part, **options: Any) -> None:
        """Train one network with its own seed, if there is a task to learn."""
        network = self.networks[number]
        seed = self.seed + number + network.steps_done
        if bool(network.usable.any()):
            with _own_randomness(seed):
                network.train(part, generator=torch.Generator().manual_seed(seed), **options)


def assign_folds(labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Deal the rows out to folds at random, stratified by their rarest positive label.

    Rows are grouped by the task, among those they are positive for, that has the fewest positives; rows
    without a positive are one group. Every group is dealt out evenly. A row belongs to no fold if the others
    would lack a class of a task without it; its number is then -1. A single fold has a quarter of the rows.
    """
    num_rows, num_tasks = labels.shape
    positive, negative = labels == 1, labels == 0
    counts = torch.where(positive, positive.sum(0), num_rows + 1)
    group = torch.where(positive.any(1), counts.argmin(1), num_tasks)
    shuffled = torch.randperm(num_rows, generator=generator)
    order = shuffled[group[shuffled].argsort(stable=True)]
    fold = torch.empty(num_rows, dtype=torch.int64)
    fold[order] = torch.arange(num_rows) % (count if count > 1 else _ALONE)  # groups lie one after the other
    dealt = fold.clone()
    fold[dealt >= count] = -1
    for number in range(count):
        rest = dealt != number
        for has in (positive, negative):
            lacking = has.any(0) & ~has[rest].any(0)
            fold[has[:, lacking].any(1)] = -1
    return fold


def _has_gained(gains: Tensor) -> bool:
    """Whether the mean is at least its standard error; true if no gain is known."""
    gains = gains[gains.isfinite()]
    if len(gains) == 0:
        return True
    error = gains.std(correction=min(1, len(gains) - 1)) / math.sqrt(len(gains))
    return bool(gains.mean() >= error)


@contextmanager
def _own_randomness(seed: int) -> Iterator[None]:
    """Seed torch's default generator, from which initial weights and dropout are drawn, and restore it."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
