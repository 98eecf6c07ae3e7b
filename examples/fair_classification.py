"""Bound the loss of every group: a constraint per block, without a grid of penalties.

A linear model tells odd digits from even ones (scikit-learn's digits). Trained on all rows, it serves most
digits well and fails one in three images of another. Here every digit is a group, and every group a block
with a dual variable, the price of its constraint "loss at most the limit". `mmb.auto` finds the step sizes.
Cooper, if it is installed, solves the same problem on all groups at once, for as many seconds.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch
from _race import Race
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

import mmb

LIMIT = 0.3  # of the mean log loss of a group
SOFTNESS = 0.02
Group = dict[str, Tensor]


def load() -> list[Group]:
    """Training and test rows of ten groups: inputs [10, 80, 25], labels [10, 80]."""
    images, digits = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = torch.linalg.svd(images - images.mean(0), full_matrices=False).U[:, :24]
    images = torch.cat([images / images.std(0), torch.ones(len(images), 1)], 1)
    rows = torch.stack([torch.where(digits == digit)[0][:160] for digit in range(10)])
    halves = [rows[:, 0::2], rows[:, 1::2]]
    return [{"inputs": images[half], "labels": (digits[half] % 2).double()} for half in halves]


def log_loss(x: Tensor, lower: None, group: Group) -> Tensor:
    """Mean log loss of one group."""
    return binary_cross_entropy_with_logits(group["inputs"] @ x, group["labels"])


def excess(x: Tensor, lower: None, group: Group) -> Tensor:
    """By how much a group's loss exceeds the limit."""
    return log_loss(x, lower, group) - LIMIT


def losses(x: Tensor, groups: Group) -> Tensor:
    """Mean log loss of every group."""
    return torch.vmap(log_loss, (None, None, 0))(x, None, groups)


def learn_with_cooper(race: Race, start: Tensor, groups: Group) -> None:
    """Gradient descent and ascent on the Lagrangian, with the step sizes of Cooper's first example."""
    import cooper

    class Bounded(cooper.ConstrainedMinimizationProblem):
        def __init__(self) -> None:
            super().__init__()
            multiplier = cooper.multipliers.DenseMultiplier(num_constraints=10)
            self.bound = cooper.Constraint(
                multiplier=multiplier, constraint_type=cooper.ConstraintType.INEQUALITY
            )

        def compute_cmp_state(self, x: Tensor) -> Any:
            found = losses(x, groups)
            over = cooper.ConstraintState(violation=(found - LIMIT).float())
            return cooper.CMPState(loss=found.mean(), observed_constraints={self.bound: over})

    race.start("Cooper")
    x, problem = start.clone().requires_grad_(), Bounded()
    optimizer = cooper.optim.SimultaneousOptimizer(
        cmp=problem,
        primal_optimizers=torch.optim.Adam([x], lr=1e-2),
        dual_optimizers=torch.optim.SGD(problem.dual_parameters(), lr=1e-2, maximize=True),
    )
    while not race.over(x):
        optimizer.roll(compute_cmp_state_kwargs={"x": x})


def main(seconds: float = 5.0, figure: Path | None = Path("fair_classification.svg")) -> dict[str, Any]:
    """Wrong test images of the worst digit and of all, without and with a constraint per digit."""
    train, test = load()
    race = Race(seconds, lambda x: float(losses(x, train).max()))
    start = torch.zeros(train["inputs"].shape[2], dtype=torch.float64)
    sampling: dict[str, Any] = {"batches": lambda blocks: ({k: v[blocks] for k, v in train.items()}, None)}
    stop = [lambda state, info: race.over(state.x)]

    def learn(name: str, upper: Any, **dual: Tensor) -> mmb.State:
        race.start(name)
        problem = mmb.Problem(upper, None, 10, mmb.projections.nonnegative() if dual else None)
        solver, state = mmb.auto(problem, start, blocks_per_step=5, **dual, **sampling)
        mmb.solve(solver, state, sampler=mmb.BlockSampler(10, 5), steps=10**6, callbacks=stop, **sampling)
        return state

    learn("no constraints", lambda x, dual, lower, group: log_loss(x, lower, group))
    if importlib.util.find_spec("cooper") is not None:
        learn_with_cooper(race, start, train)
    upper = mmb.constrained(log_loss, excess, softness=SOFTNESS)
    fair = learn("mmb.auto", upper, dual=torch.zeros(10, dtype=torch.float64))
    if figure is not None:
        race.draw(figure, "log loss of the worst digit")
    wrong = {
        name: (((test["inputs"] @ x > 0) != (test["labels"] > 0)).double().mean(1))
        for name, x in race.last.items()
    }
    return {
        "training loss of the worst digit": race.ends(),
        "wrong test images of the worst digit": {name: float(one.max()) for name, one in wrong.items()},
        "wrong test images": {name: float(one.mean()) for name, one in wrong.items()},
        "digits with a price": [digit for digit in range(10) if fair.dual[digit] > 0],
    }


if __name__ == "__main__":
    for name, found in main().items():
        print(f"{name}: {found}")
