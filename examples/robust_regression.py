"""Regressions that hold in every group, not only on average.

Twenty measurements of cell nuclei are predicted from ten others (scikit-learn's breast cancer data). Each of
the twenty regressions is judged by the worst mixture of four groups of patients: a min-max problem with a
dual on a simplex per regression. `mmb.auto` needs no step sizes. The obvious alternative takes turns, the
worst mixture for the model, then the best model for this mixture, and gets as many seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from _race import Race
from sklearn.datasets import load_breast_cancer
from torch import Tensor

import mmb

TASKS, GROUPS, RIDGE = 20, 4, 1e-3
NEARNESS = 0.3  # what a mixture pays for leaving equal shares
Rows = dict[str, Tensor]
simplex = mmb.projections.simplex()


def load() -> list[Rows]:
    """Training and test rows: inputs [n, 11], targets [n, 20], the part of its group that a row is [n, 4]."""
    measured, benign = (torch.tensor(part) for part in load_breast_cancer(return_X_y=True))
    measured = measured.log1p()
    measured = (measured - measured.mean(0)) / measured.std(0)
    middle = torch.stack([measured[benign == kind, 0].median() for kind in (0, 1)])
    group = 2 * benign + (measured[:, 0] > middle[benign])  # malignant or benign, small or large
    inputs = torch.cat([measured[:, :10], torch.ones(len(measured), 1)], 1)
    rows = {"inputs": inputs, "targets": measured[:, 10:], "member": torch.eye(GROUPS).double()[group]}
    halves = [{name: leaf[half::2] for name, leaf in rows.items()} for half in (0, 1)]
    counts = [half["member"].sum(0) for half in halves]
    return [
        half | {"member": half["member"] / count, "count": count}
        for half, count in zip(halves, counts, strict=True)
    ]


def errors(x: Tensor, rows: Rows) -> Tensor:
    """Mean squared error in every group; of all regressions for their weights `x` [20, 11]: [20, 4]."""
    return (rows["inputs"] @ x.T - rows["targets"]).square().T @ rows["member"]


def best_model(mixture: Tensor, rows: Rows) -> Tensor:
    """The best weights of every regression for its mixture of groups, [20, 4]: weighted ridge regressions."""
    weighted = torch.einsum("nf,ng,tg->tnf", rows["inputs"], rows["member"], mixture)
    gram = weighted.mT @ rows["inputs"] + RIDGE * torch.eye(rows["inputs"].shape[1])
    return torch.linalg.solve(gram, torch.einsum("tnf,nt->tf", weighted, rows["targets"]))


def worst_mixture(x: Tensor, rows: Rows) -> Tensor:
    """The least favorable mixture for every regression."""
    return torch.vmap(simplex)(1 / GROUPS + errors(x, rows) / NEARNESS)


def value(error: Tensor, mixture: Tensor, weights: Tensor) -> Tensor:
    """What is minimized over the weights and maximized over the mixture."""
    price = NEARNESS * (mixture - 1 / GROUPS).square().sum(-1)
    return (error * mixture).sum(-1) + 0.5 * (RIDGE * weights.square().sum(-1) - price)


def main(seconds: float = 5.0, figure: Path | None = Path("robust_regression.svg")) -> dict[str, Any]:
    """The objective after some seconds, and the mean over regressions of the worst group's test error."""
    train, test = load()
    equal = torch.full((TASKS, GROUPS), 1 / GROUPS, dtype=torch.float64)
    start = best_model(equal, train)
    race = Race(seconds, lambda x: float(value(errors(x, train), worst_mixture(x, train), x).mean()))

    race.start("taking turns")
    x = start
    while not race.over(x):
        x = best_model(worst_mixture(x, train), train)

    def worst_loss(x: Tensor, mixture: Tensor, lower: None, task: Tensor) -> Tensor:
        own = {**train, "targets": train["targets"][:, task, None]}
        return value(errors(x[task, None], own)[0], mixture, x[task])

    race.start("mmb.auto")
    problem = mmb.Problem(worst_loss, None, TASKS, simplex)
    sampling: dict[str, Any] = {"batches": lambda tasks: (tasks, None)}
    solver, state = mmb.auto(problem, start, dual=equal, blocks_per_step=10, **sampling)
    stop = [lambda state, info: race.over(state.x)]
    mmb.solve(solver, state, sampler=mmb.BlockSampler(TASKS, 10), steps=10**6, callbacks=stop, **sampling)

    if figure is not None:
        race.draw(figure, "loss under the worst mixture", "log")
    models = {
        "least squares": best_model(train["count"] / train["count"].sum() * torch.ones(TASKS, 1), train)
    }
    test_errors = {name: float(errors(x, test).amax(1).mean()) for name, x in (models | race.last).items()}
    return {"objective": race.ends(), "worst group": test_errors}


if __name__ == "__main__":
    for name, found in main().items():
        print(f"{name}: {found}")
