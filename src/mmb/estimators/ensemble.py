"""A few networks and trees that are averaged, each trained without a different share of the rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mmb import soup
from mmb.estimators.calibration import unseen_logits
from mmb.estimators.inputs import Rows
from mmb.estimators.network import Network, NetworkState, Part, both_classes
from mmb.estimators.trees import Trees
from mmb.label_values import MISSING
from mmb.log_odds import fit_log_odds

CONTROL = "ce"
"""The objective of the first steps; their weights are kept unless an average with others is better."""
_GUARD = 0.5  # standard errors by which an average must be better; all rows are held out by some network
_FRESH_GUARD = 1.0  # the same for networks from random weights
_ALONE = 4  # a single fold has one share out of this many


class CrossFit(NamedTuple):
    """The outcome of training without each fold in turn."""

    shares: dict[str, float]  # of branches in the average, by objective
    values: Tensor  # how good the held-out logits of each fold are
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
    """Networks whose logits are averaged, their kinds of models weighed for each task by held-out rows.

    After `cross_fit`, trees may be two more kinds.
    """

    def __init__(self, count: int, seed: int, make: Callable[[], Network]) -> None:
        self.seed, self.networks = seed, []
        self.trees: list[Trees] = []  # none, or as many as networks
        for number in range(count):
            with _own_randomness(seed + number):
                self.networks.append(make())
        self.kinds, num_tasks = self.networks[0].kinds, self.networks[0].mass.shape[1]  # without trees
        self.blend = torch.full((self.kinds, num_tasks), 1 / self.kinds, dtype=torch.float64)

    def scores(self, rows: Rows) -> Tensor:
        """Logits `[n, m]`."""
        return (self.blend * self._by_every_kind(rows)).sum(1)

    @property
    def models(self) -> nn.ModuleList:
        """The models of all networks."""
        return nn.ModuleList([network.model for network in self.networks])

    def _by_kind(self, rows: Rows, models: Iterable[nn.Module], offset: Tensor | None = None) -> Tensor:
        """Logits `[n, kinds, m]`, float64, the mean of some networks; of inputs less an offset `[d]`."""
        logits = torch.stack([rows.scores(model, offset).double() for model in models]).mean(0)
        return logits.reshape(len(logits), self.kinds, self.blend.shape[1])

    def _by_every_kind(self, rows: Rows) -> Tensor:
        """The same of all networks, and of the trees after them."""
        logits = self._by_kind(rows, self.models)
        if not self.trees:
            return logits
        return torch.cat([logits, torch.stack([trees.logits(rows) for trees in self.trees]).mean(0)], 1)

    def cross_fit(
        self,
        part: Part,
        stages: Sequence[tuple[int, float]],
        branches: Sequence[str],
        fresh: str | None,
        trees: bool,
        batch_size: int,
        metric: Callable[[Tensor, Tensor], Tensor],
    ) -> CrossFit:
        """Train each network without its fold of the rows: by cross-entropy, then in branches, averaged.

        Networks for the objective `fresh` are trained with the same settings and random weights as those for
        cross-entropy. If they are better on the held-out folds beyond noise, they are used. If not, branches
        start from the weights after cross-entropy, each for another objective. The average of weights that is
        best on the folds (`mmb.soup.greedy`), the same for all networks, is used if it is better than
        cross-entropy alone beyond noise.

        Args:
            part: The rows.
            stages: Number of steps and step size of the first phase, and of each branch.
            branches: Objectives of the branches.
            fresh: Objective of networks from random weights; None for none.
            trees: Whether to grow trees without each fold as well, if the rows suit them.
            batch_size: Rows per step.
            metric: From logits and labels to a value for each task.
        """
        held_out = _HeldOut(self, part, metric)
        first, second = (
            {"steps": steps, "lr": lr, "batch_size": batch_size, "decay": True} for steps, lr in stages
        )
        for network, own in zip(self.networks, held_out.parts, strict=True):
            network.see(own.labels, own.weights)
        at_random = [network.state() for network in self.networks]
        for number, own in enumerate(held_out.parts):
            self._train(number, own, CONTROL, **first)
        if trees and Trees.suit(part):
            self.trees = [Trees(own, self.seed + number) for number, own in enumerate(held_out.parts)]
            logits = torch.stack([trees.logits(part.rows) for trees in self.trees])
            held_out.by_trees = unseen_logits(logits, held_out.fold)
        shares = {CONTROL: 1.0}
        if branches:
            found = self._branched(held_out, at_random, branches, fresh, first, second)
            self.models.load_state_dict(found.model.state_dict())
            for network in self.networks:
                network.placed = None
            shares = {str(name): share for name, share in found.weights.items() if share > 0}
        self.blend, _ = fit_log_odds(held_out.by_kind(self.models), held_out.labels, part.weights)
        # trees know the rows they were grown on by heart: here, each row always has those grown without it
        by_trees, folds = held_out.by_trees, held_out.folds
        logits = torch.stack([self._blended(part.rows, model, by_trees) for model in self.models])
        alone = unseen_logits(logits, held_out.fold)
        values = [metric(alone[out], part.labels[out]).nanmean() for out in folds if bool(out.any())]
        for out, model in zip(folds, self.models, strict=True):
            alone[out] = self._blended(part.rows.only(out), model, by_trees[out], part.offset(out))
        return CrossFit(shares, torch.tensor(values), logits, alone, held_out.fold)

    def _blended(
        self, rows: Rows, model: nn.Module, by_trees: Tensor, offset: Tensor | None = None
    ) -> Tensor:
        """Logits `[n, m]` of a model, and of trees `[n, 0 or 2, m]`."""
        return (self.blend * torch.cat([self._by_kind(rows, [model], offset), by_trees], 1)).sum(1)

    def _branched(
        self,
        held_out: _HeldOut,
        at_random: Sequence[NetworkState],
        branches: Sequence[str],
        fresh: str | None,
        first: dict[str, Any],
        second: dict[str, Any],
    ) -> soup.Soup:
        """The networks after cross-entropy, fresh ones or an average with branches, as `cross_fit` says."""
        every, parts = range(len(self.networks)), held_out.parts
        by_ce, after_ce = copy.deepcopy(self.models), [network.state() for network in self.networks]
        known = bool(both_classes(held_out.labels).any())
        found = soup.uniform({CONTROL: by_ce})
        if known and fresh is not None:
            self._train_from(at_random, parts, every[:1], fresh, first)
            if held_out.is_first_better(self.models, by_ce):  # most often, it is not
                trained = self._train_from(at_random, parts, every[1:], fresh, first)
                alone = soup.uniform({fresh: trained})
                found = soup.better(found, alone, held_out.evaluate, guard=_FRESH_GUARD)
        if found.picked != (CONTROL,):
            return found
        pool = {CONTROL: by_ce}
        for name in branches:
            pool[name] = self._train_from(after_ce, parts, every, name, second)
        if not known:
            return soup.uniform(pool)
        return soup.greedy(pool, held_out.evaluate, fallback=CONTROL, guard=_GUARD)

    def _train_from(
        self,
        starts: Sequence[NetworkState],
        parts: Sequence[Part],
        numbers: Iterable[int],
        objective: str,
        options: dict[str, Any],
    ) -> nn.ModuleList:
        """Train some networks for an objective, from earlier states; the models of all of them."""
        for number in numbers:
            self.networks[number].restore(starts[number])
            self._train(number, parts[number], objective, **options)
        return copy.deepcopy(self.models)

    def train(self, part: Part, objective: str, *, steps: int, first_steps: int, **options: Any) -> None:
        """Train all networks on the same rows, with options of `Network.train`.

        The first steps, counted from the first call, are by cross-entropy. Networks that were trained before
        have not seen these rows, so the rows first determine the weights of the kinds of models.
        """
        if self.networks[0].steps_done:
            logits = self._by_every_kind(part.rows)
            blend, _ = fit_log_odds(logits, part.labels, part.weights, self.blend)
            self.blend = torch.where(both_classes(part.labels), blend, self.blend)
        for number, network in enumerate(self.networks):
            network.see(part.labels, part.weights)
            first = min(steps, max(0, first_steps - network.steps_done))
            for name, count in ((CONTROL, first), (objective, steps - first)):
                if count:
                    self._train(number, part, name, steps=count, **options)

    def _train(self, number: int, part: Part, objective: str, **options: Any) -> None:
        """Train one network with its own seed, if there is a task to learn."""
        network = self.networks[number]
        seed = self.seed + number + network.steps_done
        if bool(network.usable.any()):
            if network.placed != objective:
                network.place_objective(objective, part)
            with _own_randomness(seed):
                network.train(part, objective, generator=torch.Generator().manual_seed(seed), **options)


class _HeldOut:
    """The rows that each network is trained without, and how good models are on them."""

    def __init__(self, ensemble: Ensemble, part: Part, metric: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._ensemble, self._part, self._metric = ensemble, part, metric
        count = len(ensemble.networks)
        self.fold = assign_folds(part.labels, count, torch.Generator().manual_seed(ensemble.seed))
        self.folds = [self.fold == number for number in range(count)]
        self.parts = [part.only(~out) for out in self.folds]  # what each network is trained on
        self.labels = torch.where((self.fold >= 0).unsqueeze(1), part.labels, MISSING)
        # logits of each row by the trees grown without it, `[n, 0 or 2, m]`
        self.by_trees = torch.zeros(len(self.fold), 0, part.labels.shape[1], dtype=torch.float64)

    def by_kind(self, models: nn.ModuleList) -> Tensor:
        """Logits `[n, kinds, m]` of each row by the models, and the trees, trained without it."""
        shape = (len(self.fold), self._ensemble.kinds, self.by_trees.shape[2])
        found = torch.zeros(shape, dtype=torch.float64)
        for out, model in zip(self.folds, models, strict=True):
            found[out] = self._ensemble._by_kind(self._part.rows.only(out), [model])
        return torch.cat([found, self.by_trees], 1)

    def evaluate(self, models: nn.Module) -> Tensor:
        """How good the logits of each row by the models trained without it are, with their noise."""
        return soup.jackknife(self._metric, self._blended(models, self.labels), self.labels)

    def is_first_better(self, models: nn.ModuleList, others: nn.ModuleList) -> bool:
        """Whether the first model beats another one on the rows it was trained without."""
        own = torch.where(self.folds[0].unsqueeze(1), self.labels, MISSING)
        if not bool(both_classes(own).any()):
            return False
        now, before = (self._metric(self._blended(each, own), own).nanmean() for each in (models, others))
        return bool(now > before)

    def _blended(self, models: nn.Module, labels: Tensor) -> Tensor:
        """Logits `[n, m]` of each row, the kinds of models weighed by some labels `[n, m]`."""
        assert isinstance(models, nn.ModuleList)
        logits = self.by_kind(models)
        blend, _ = fit_log_odds(logits, labels, self._part.weights)
        return (blend * logits).sum(1)


def assign_folds(labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Divide the rows among folds at random, stratified by their rarest positive label.

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


@contextmanager
def _own_randomness(seed: int) -> Iterator[None]:
    """Seed torch's default generator, from which initial weights and dropout are drawn, and restore it."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
