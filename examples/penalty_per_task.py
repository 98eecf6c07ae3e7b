"""Regularization for every task and every feature, where a grid ends at one number per task.

Forty-five classifiers tell pairs of digits apart, each from 20 images (scikit-learn's digits): ridge
regressions on labels of plus and minus one, the lower level. Every pair has a penalty, and every feature a
factor that all pairs share, both chosen so that validation errors are small: the upper level. The obvious
alternative is a grid search for the best penalty of every pair, finer and finer, for as many seconds.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import torch
from _race import Race
from sklearn.datasets import load_digits
from torch import Tensor

import mmb

PAIRS, FEATURES = list(itertools.combinations(range(10), 2)), 24
PARTS = {"train": 10, "valid": 10, "test": 150}  # images of each of the two digits
CONSTANT = 1e-3  # penalty of the constant
Data = dict[str, Tensor]


def load(generator: torch.Generator) -> list[Data]:
    """Training, validation and test data: principal components [45, n, 25], labels [45, n], which pair."""
    images, digits = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = torch.linalg.svd(images - images.mean(0), full_matrices=False).U[:, :FEATURES]
    images = torch.cat([images / images.std(0), torch.ones(len(images), 1)], 1)
    rows = [torch.where(digits == digit)[0] for digit in range(10)]
    rows = [one[torch.randperm(len(one), generator=generator)[: sum(PARTS.values())]] for one in rows]
    data = []
    for part in zip(*(one.split(list(PARTS.values())) for one in rows), strict=True):
        pairs = torch.stack([torch.cat([part[one], part[other]]) for one, other in PAIRS])
        labels = torch.tensor([1.0, -1.0]).double().repeat_interleave(len(part[0])).expand(len(PAIRS), -1)
        data.append({"inputs": images[pairs], "labels": labels, "pair": torch.arange(len(PAIRS))})
    return data


def penalties(x: Tensor) -> Tensor:
    """Penalties of all pairs and features, [45, 24]; `x` has a number per pair, then one per feature."""
    pair, feature = x.split([len(PAIRS), FEATURES])
    return 5 * torch.sigmoid(pair[:, None] + feature)


def margins(weights: Tensor, data: Data) -> Tensor:
    """Scores of one pair's images, or of all pairs', times their labels: wrong below zero."""
    return (data["inputs"] @ weights[..., None]).squeeze(-1) * data["labels"]


def loss(weights: Tensor, data: Data) -> Tensor:
    """Mean squared error of one pair, or of all."""
    return (margins(weights, data) - 1).square().mean(-1)


def validation_loss(x: Tensor, dual: None, weights: Tensor, data: Data) -> Tensor:
    """`f` of one pair; a weak pull keeps factors where they still have an effect."""
    return loss(weights, data) + 1e-3 * x[len(PAIRS) :].square().sum()


def training_loss(x: Tensor, weights: Tensor, data: Data) -> Tensor:
    """`g` of one pair."""
    penalty = torch.cat([penalties(x)[data["pair"]], x.new_tensor([CONSTANT])])
    return 0.5 * (loss(weights, data) + (penalty * weights.square()).sum())


def fit(penalty: Tensor, data: Data) -> Tensor:
    """The ridge regressions of all pairs, solved exactly."""
    diagonal = torch.cat([penalty, penalty.new_full((len(PAIRS), 1), CONSTANT)], 1)
    gram = data["inputs"].mT @ data["inputs"] / data["inputs"].shape[1] + torch.diag_embed(diagonal)
    return torch.linalg.solve(gram, (data["inputs"] * data["labels"][..., None]).mean(1))


def main(seconds: float = 10.0, figure: Path | None = Path("penalty_per_task.svg")) -> dict[str, Any]:
    """Validation loss and share of wrong test images, after some seconds."""
    train, valid, test = load(torch.Generator().manual_seed(0))
    race = Race(seconds, lambda penalty: float(loss(fit(penalty, train), valid).mean()))

    race.start("grid search")
    best, chosen = torch.full((len(PAIRS),), torch.inf), torch.ones(len(PAIRS), FEATURES).double()
    points = (10.0 ** (4 * (place + 0.5) / 2**level - 3) for level in range(60) for place in range(2**level))
    while not race.over(chosen):
        grid = torch.full_like(chosen, next(points))
        found = loss(fit(grid, train), valid)
        chosen, best = torch.where((found < best)[:, None], grid, chosen), torch.minimum(best, found)

    def batches(pairs: Tensor) -> tuple[Data, Data]:
        return {k: v[pairs] for k, v in valid.items()}, {k: v[pairs] for k, v in train.items()}

    race.start("mmb.auto")
    problem = mmb.Problem(validation_loss, training_loss, len(PAIRS))
    start = torch.cat([torch.full((len(PAIRS),), -3.0), torch.zeros(FEATURES)]).double()  # penalties of 0.24
    lower = fit(penalties(start), train)
    solver, state = mmb.auto(problem, start, lower=lower, batches=batches, blocks_per_step=15)
    stop = [lambda state, info: race.over(penalties(state.x))]
    sampler = mmb.BlockSampler(len(PAIRS), 15)
    mmb.solve(solver, state, sampler=sampler, batches=batches, steps=10**6, callbacks=stop)

    if figure is not None:
        race.draw(figure, "validation loss")
    wrong = {
        name: float((margins(fit(penalty, train), test) <= 0).double().mean())
        for name, penalty in race.last.items()
    }
    return {"validation loss": race.ends(), "wrong test images": wrong}


if __name__ == "__main__":
    for name, found in main().items():
        print(f"{name}: {found}")
