"""Learn the regularization of many regressions at once: hyperparameters by multi-block bilevel optimization.

Each of `m` tasks fits a ridge regression on a few training rows (the lower level). All tasks share one
penalty per feature, chosen so that their validation errors are small (the upper level). Only some features
matter, the same ones in every task. Penalties per feature can find them, and a single penalty cannot.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

import mmb

LARGEST = 5.0  # penalties stay below this, so that one step size fits the lower level


def penalties(x: Tensor) -> Tensor:
    """The penalty of each feature."""
    return LARGEST * torch.sigmoid(x)


def validation_error(x: Tensor, dual: None, weights: Tensor, data: dict[str, Tensor]) -> Tensor:
    """Upper level: mean squared error of one task on its validation rows. There is no dual variable."""
    return (data["inputs"] @ weights - data["targets"]).square().mean()


def training_loss(x: Tensor, weights: Tensor, data: dict[str, Tensor]) -> Tensor:
    """Lower level: the penalized training error of one task."""
    error = (data["inputs"] @ weights - data["targets"]).square().mean()
    return (error + (penalties(x) * weights.square()).sum()) / 2


def make_tasks(
    num_tasks: int, rows: int, features: int, relevant: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """Regressions with unit noise. Only the first `relevant` features have weights."""
    inputs = torch.randn(num_tasks, rows, features, generator=generator)
    weights = torch.randn(num_tasks, features, generator=generator) * (torch.arange(features) < relevant)
    noise = torch.randn(num_tasks, rows, generator=generator)
    return {"inputs": inputs, "targets": torch.einsum("tnf,tf->tn", inputs, weights) + noise}


def pick(data: dict[str, Tensor], tasks: Tensor) -> dict[str, Tensor]:
    """The data of some tasks."""
    return {name: leaf[tasks] for name, leaf in data.items()}


def ridge_error(penalty: Tensor, fit: dict[str, Tensor], test: dict[str, Tensor]) -> float:
    """Mean squared test error of regressions that are solved exactly with a penalty per feature."""
    gram = fit["inputs"].mT @ fit["inputs"] / fit["inputs"].shape[1] + torch.diag(penalty)
    moment = (fit["inputs"] * fit["targets"].unsqueeze(2)).mean(1)
    weights = torch.linalg.solve(gram, moment)
    return float((torch.einsum("tnf,tf->tn", test["inputs"], weights) - test["targets"]).square().mean())


def main(
    num_tasks: int = 500, features: int = 20, relevant: int = 5, steps: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """Learn penalties, and compare their test error with that of the best single penalty of a grid."""
    generator = torch.Generator().manual_seed(seed)
    rows = {"train": 25, "valid": 25, "test": 500}
    every = make_tasks(num_tasks, sum(rows.values()), features, relevant, generator)
    cut = {name: torch.split(leaf, list(rows.values()), dim=1) for name, leaf in every.items()}
    train, valid, test = ({name: cut[name][part] for name in cut} for part in range(3))

    problem = mmb.Problem(upper=validation_error, lower=training_loss, num_blocks=num_tasks)
    solver = mmb.Solver(
        problem,
        mmb.QuadraticSGD(lr=0.1),  # lower Hessians have eigenvalues below about 10
        lr_lower=0.1,
        optimizer=functools.partial(torch.optim.Adam, lr=0.02),
    )
    state = solver.init(torch.zeros(features), lower=torch.zeros(num_tasks, features))
    mmb.solve(
        solver,
        state,
        sampler=mmb.BlockSampler(num_tasks, min(100, num_tasks), seed),
        batches=lambda tasks: (pick(valid, tasks), pick(train, tasks)),
        steps=steps,
        callbacks=[mmb.Watch(every=max(1, steps // 5))],
    )
    learned = penalties(state.x)
    grid = [torch.full((features,), value) for value in torch.logspace(-3, 1, 21).tolist()]
    single = min(grid, key=lambda penalty: ridge_error(penalty, train, valid))
    return {
        "penalties": learned,
        "one penalty": ridge_error(single, train, test),
        "a penalty per feature": ridge_error(learned, train, test),
    }


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value}")
