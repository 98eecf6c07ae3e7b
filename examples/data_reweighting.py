"""Find the wrong labels: a weight for every training row, learned from a few rows that are known to be right.

Three labels in five of 800 digits are wrong (scikit-learn's digits); those of 100 more are right. Ten
classifiers, one per digit, train on weighted rows: the lower level, one block each. The weights, which all
share, are chosen so that the classifiers do well on the rows that are right: the upper level. TorchOpt, if it
is installed, differentiates through the same training, all classifiers at once, for as many seconds.
"""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import torch
from _race import Race
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as log_loss

import mmb

NOISE, RIDGE, LR = 0.6, 0.005, 4.0  # of labels, of weights, of steps of the classifiers
PARTS = {"train": 800, "right": 100, "test": 897}
Data = dict[str, Tensor]


def load(generator: torch.Generator) -> list[Data]:
    """Training, right and test rows: inputs [n, 25], digits [n] and, for each classifier, labels [10, n]."""
    images, digits = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = torch.linalg.svd(images - images.mean(0), full_matrices=False).U[:, :24]
    images = torch.cat([images / images.std(0), torch.ones(len(images), 1)], 1)
    rows = torch.randperm(len(images), generator=generator).split(list(PARTS.values()))
    given = digits.clone()
    wrong = rows[0][torch.rand(len(rows[0]), generator=generator) < NOISE]
    given[wrong] = (given[wrong] + torch.randint(1, 10, wrong.shape, generator=generator)) % 10
    return [
        {"inputs": images[part], "digits": digits[part], "labels": torch.eye(10).double()[given[part]].T}
        for part in rows
    ]


def right_loss(weights: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """Mean log loss of a classifier on rows that are right."""
    return log_loss(inputs @ weights, labels)


def training_loss(x: Tensor, weights: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """Log loss of a classifier on weighted rows."""
    losses = log_loss(inputs @ weights, labels, reduction="none")
    return (torch.sigmoid(x) * losses).mean() + 0.5 * RIDGE * weights.square().sum()


def right_losses(weights: Tensor, right: Data) -> Tensor:
    """Losses of all ten classifiers on rows that are right."""
    return torch.vmap(right_loss, (0, None, 0))(weights, right["inputs"], right["labels"])


def slopes(x: Tensor, weights: Tensor, train: Data) -> Tensor:
    """Gradients of all ten training losses."""
    slope = torch.vmap(torch.func.grad(training_loss, 1), (None, 0, None, 0))
    return slope(x, weights, train["inputs"], train["labels"])


def fit(x: Tensor, train: Data) -> Tensor:
    """All ten classifiers for given weights of rows, trained to the end, [10, 25]."""
    weights = torch.zeros(10, train["inputs"].shape[1], dtype=torch.float64)
    for _ in range(200):
        weights = weights - LR * slopes(x, weights, train)
    return weights


def learn_with_torchopt(race: Race, start: Tensor, train: Data, right: Data, lower: Tensor) -> None:
    """Implicit differentiation by conjugate gradients, after one step of all classifiers, and Adam."""
    import torchopt

    warnings.filterwarnings("ignore", category=FutureWarning, module="torchopt")  # it calls functorch
    cg = torchopt.linear_solve.solve_cg(maxiter=10)

    @torchopt.diff.implicit.custom_root(lambda weights, x: slopes(x, weights, train), argnums=1, solve=cg)
    def trained(weights: Tensor, x: Tensor) -> Tensor:
        return weights - LR * slopes(x, weights, train)

    race.start("TorchOpt")
    x = start.clone().requires_grad_()
    adam = torch.optim.Adam([x], lr=0.1)
    while not race.over(x):
        weights = trained(lower, x)
        (x.grad,) = torch.autograd.grad(right_losses(weights, right).mean(), x)
        adam.step()
        lower = weights.detach()


def main(seconds: float = 8.0, figure: Path | None = Path("data_reweighting.svg")) -> dict[str, Any]:
    """Loss on right rows after some seconds, and the share of test images that are recognized."""
    train, right, test = load(torch.Generator().manual_seed(0))
    race = Race(seconds, lambda x: float(right_losses(fit(x, train), right).mean()))
    start = torch.zeros(PARTS["train"], dtype=torch.float64)
    equal = fit(start, train)
    if importlib.util.find_spec("torchopt") is not None:
        learn_with_torchopt(race, start, train, right, equal)

    def batches(digits: Tensor) -> tuple[Tensor, Tensor]:
        return right["labels"][digits], train["labels"][digits]

    race.start("mmb.auto")
    problem = mmb.Problem(
        upper=lambda x, dual, weights, labels: right_loss(weights, right["inputs"], labels),
        lower=lambda x, weights, labels: training_loss(x, weights, train["inputs"], labels),
        num_blocks=10,
    )
    solver, state = mmb.auto(problem, start, lower=equal, batches=batches, blocks_per_step=5)
    stop = [lambda state, info: race.over(state.x)]
    mmb.solve(solver, state, sampler=mmb.BlockSampler(10, 5), batches=batches, steps=10**6, callbacks=stop)
    if figure is not None:
        race.draw(figure, "log loss on rows that are right")
    models = {"all rows": equal, "right rows alone": fit(torch.full((PARTS["right"],), 20.0), right)}
    models |= {name: fit(x, train) for name, x in race.last.items()}
    known = {
        name: float(((test["inputs"] @ weights.T).argmax(1) == test["digits"]).double().mean())
        for name, weights in models.items()
    }
    return {"loss on right rows": race.ends(), "recognized test images": known}


if __name__ == "__main__":
    for name, found in main().items():
        print(f"{name}: {found}")
