"""Pools of branches from one start by cross-entropy, on small data sets with few validation positives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn import datasets
from torch import Tensor, nn

from mmb import auc
from mmb.data.sets import bbbp, clintox, digits, hiv, sider, synthetic, tox21
from mmb.data.splits import random_split
from mmb.models import mlp
from mmb.schedules import half_cosine

State = dict[str, Tensor]


class Data(NamedTuple):
    """Inputs, labels (int8 `[n, m]`, -1 for missing), rows of each part, and what to train."""

    inputs: Tensor
    labels: Tensor
    split: dict[str, Tensor]
    network: nn.Module
    steps: int  # by cross-entropy; half as many for a branch
    weight_decay: float = 0.0


class Pool(NamedTuple):
    """A data set, the weights that all branches start from, and those of each branch."""

    data: Data
    start: State
    branches: dict[str, State]


def _table(x: np.ndarray, y: np.ndarray, seed: int, hidden: int = 64, steps: int = 600) -> Data:
    inputs = torch.as_tensor(x, dtype=torch.float32)
    split = random_split(len(x), (0.5, 0.2, 0.3), torch.Generator().manual_seed(seed))
    fit = inputs[split["train"]]
    inputs = (inputs - fit.mean(0)) / fit.std(0).clamp(min=1e-3)
    labels = torch.as_tensor(y, dtype=torch.int8)
    return Data(inputs, labels, split, mlp(x.shape[1], [hidden], labels.shape[1]), steps, 1e-4)


def _molecules(module: Any, root: Path, seed: int, steps: int, flip: bool = False) -> Data:
    loaded = module.load(
        root, features="fingerprint", bits=1024, split="random", fractions=(0.6, 0.15, 0.25), seed=seed
    )
    inputs = loaded.inputs[torch.arange(len(loaded))].float()
    labels = torch.where(loaded.labels >= 0, 1 - loaded.labels, -1) if flip else loaded.labels
    network = mlp(1024, [256], labels.shape[1], dropout=0.5)
    return Data(inputs, labels, loaded.split, network, steps, 1e-4)


def _digits(seed: int, root: Path) -> Data:
    loaded = digits.load(seed=seed)
    return Data(loaded.inputs, loaded.labels, loaded.split, mlp(64, [64], 10), 1000)


def _synthetic(**options: Any) -> Callable[[int, Path], Data]:
    def load(seed: int, root: Path) -> Data:
        loaded = synthetic.load(seed=seed, **options)
        return Data(loaded.inputs, loaded.labels, loaded.split, mlp(20, [64], options["tasks"]), 1000)

    return load


def _breast_cancer(seed: int, root: Path) -> Data:
    """Every third malignant tumour is kept, 16 % of the rows."""
    x, benign = datasets.load_breast_cancer(return_X_y=True)
    kept = np.concatenate([np.flatnonzero(benign), np.flatnonzero(benign == 0)[seed % 3 :: 3]])
    return _table(x[kept], 1 - benign[kept, None], seed)


def _wine(seed: int, root: Path) -> Data:
    x, grower = datasets.load_wine(return_X_y=True)
    return _table(x, grower[:, None] == np.arange(3), seed, steps=300)


def _hypercubes(seed: int, root: Path) -> Data:
    """One task, 4 % positives in several clusters, some labels wrong."""
    x, y = datasets.make_classification(
        5000, 30, n_informative=10, n_clusters_per_class=4, weights=[0.96], flip_y=0.01, random_state=seed
    )
    return _table(x, y[:, None], seed)


SETS: dict[str, Callable[[int, Path], Data]] = {
    "digits": _digits,
    "synthetic": _synthetic(rows=4000, tasks=10, positive_rate=0.05, missing_rate=0.2),
    "synthetic, rare": _synthetic(rows=8000, tasks=5, positive_rate=0.01),
    "synthetic, noisy": _synthetic(rows=4000, tasks=20, positive_rate=0.1, noise=1.0),
    "breast cancer": _breast_cancer,
    "wine": _wine,
    "hypercubes": _hypercubes,
    "tox21": lambda seed, root: _molecules(tox21, root, seed, 500),
    "sider": lambda seed, root: _molecules(sider, root, seed, 200),
    "clintox": lambda seed, root: _molecules(clintox, root, seed, 200),
    "bbbp": lambda seed, root: _molecules(bbbp, root, seed, 200, flip=True),
    "hiv": lambda seed, root: _molecules(hiv, root, seed, 1000),
}


class Mixed(auc.Objective):
    """Cross-entropy and a little of MinMaxAUC."""

    def __init__(self, labels: Tensor) -> None:
        super().__init__(labels)
        self.entropy = auc.CrossEntropy(labels)
        self.ranking = auc.MinMaxAUC(labels, anchor=0.0, transform="recentered", margin=4.0)

    def loss(self, entries: auc.WeightedScores) -> Tensor:
        return self.entropy.loss(entries) + 0.05 * self.ranking.loss(entries)

    def warm_start(self, scores: Tensor, labels: Tensor) -> None:
        self.ranking.warm_start(scores, labels)


BRANCHES: dict[str, Callable[[Tensor], auc.Objective]] = {
    "ce": auc.CrossEntropy,
    "auc, recentered": lambda y: auc.MinMaxAUC(y, anchor=0.0, transform="recentered", margin=4.0),
    "auc, logits": lambda y: auc.MinMaxAUC(y, anchor=0.0, transform="logit", margin=2.0),
    "ce + auc": Mixed,
    "sopa-s": lambda y: auc.SOPAs(y, anchor=0.0, transform="recentered"),
    "pauc, recentered": lambda y: auc.PartialAUC(
        y, anchor=0.0, transform="recentered", margin=8.0, max_fpr=0.5
    ),
    "pauc": lambda y: auc.PartialAUC(y, anchor=0.0),
    "pairwise": lambda y: auc.PairwisePartialAUC(y, anchor=0.0, unit=1.0),
}


def train(
    data: Data, network: nn.Module, objective: auc.Objective, steps: int, lr: float, seed: int
) -> State:
    """Train by Adam with a step size that falls by half a cosine; half of the rows are rich."""
    rows = data.split["train"]
    inputs, labels = data.inputs[rows], data.labels[rows]
    generator = torch.Generator().manual_seed(seed)
    sampler = auc.RichRowSampler(labels, min(128, len(rows)), 0.5, generator=generator)
    parameters = [*network.parameters(), *objective.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=lr, weight_decay=data.weight_decay)
    network.train()
    torch.manual_seed(seed)  # of dropout
    for step, draw in enumerate(islice(chain.from_iterable(repeat(sampler)), steps)):
        optimizer.param_groups[0]["lr"] = lr * half_cosine((step + 1) / steps)
        optimizer.zero_grad()
        batch = replace(draw).with_inputs(inputs[draw.rows], labels[draw.rows])
        objective.backward(network, batch)
        optimizer.step()
    network.eval()
    return {name: value.clone() for name, value in network.state_dict().items()}


def make(name: str, seed: int, root: Path) -> Pool:
    """Train a start by cross-entropy, and each branch from it for half as many steps."""
    torch.manual_seed(seed)
    data = SETS[name](seed, root)
    labels = data.labels[data.split["train"]]
    inputs = data.inputs[data.split["train"]]
    start = train(data, data.network, auc.CrossEntropy(labels), data.steps, 3e-3, seed)
    with torch.no_grad():
        scores = data.network(inputs)
    branches = {}
    for number, (branch, make_objective) in enumerate(BRANCHES.items()):
        data.network.load_state_dict(start)
        objective = make_objective(labels)
        objective.warm_start(scores, labels)
        branches[branch] = train(data, data.network, objective, data.steps // 2, 1e-3, 100 * seed + number)
    for number in range(1, 5):  # as many more by cross-entropy, for the control
        data.network.load_state_dict(start)
        objective = auc.CrossEntropy(labels)
        state = train(data, data.network, objective, data.steps // 2, 1e-3, 100 * seed + 50 + number)
        branches[f"ce {number}"] = state
    return Pool(data, start, branches)


def kept(name: str, seed: int, root: Path, folder: Path | None) -> Pool:
    """A pool from a folder of earlier ones, or trained now and put there."""
    if folder is None:
        return make(name, seed, root)
    path = folder / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}.pt"
    if path.exists():
        return Pool(SETS[name](seed, root), *torch.load(path))
    folder.mkdir(parents=True, exist_ok=True)
    pool = make(name, seed, root)
    torch.save((pool.start, pool.branches), path)
    return pool
