"""Bound the loss of every group: a constraint per block, without a grid of penalties.

Groups share one logistic regression, but most rows are of groups that agree, and a few groups differ.
Trained on all rows, the model serves the many and fails the few. Here every group is a block with a dual
variable, the price of its constraint "loss at most the limit". `mmb.auto` finds the step sizes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

import mmb

LIMIT = 0.55  # of the mean log loss of a group


def log_loss(x: Tensor, lower: None, group: dict[str, Tensor]) -> Tensor:
    """Mean log loss of one group."""
    return binary_cross_entropy_with_logits(group["inputs"] @ x, group["labels"])


def weighted_loss(x: Tensor, lower: None, group: dict[str, Tensor]) -> Tensor:
    """The group's part of the loss of all rows."""
    return group["share"] * log_loss(x, lower, group)


def excess(x: Tensor, lower: None, group: dict[str, Tensor]) -> Tensor:
    """By how much a group's loss exceeds the limit."""
    return log_loss(x, lower, group) - LIMIT


def make_groups(num_groups: int, rows: int, features: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Groups of which one in five follows other weights and has a fiftieth of the rows of the others."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    few = (torch.arange(num_groups) % 5 == 0).float()
    common, other = normal(2, features)
    weights = 2 * common + 2 * few[:, None] * other
    inputs = normal(num_groups, rows, features)
    chance = torch.sigmoid(torch.einsum("grf,gf->gr", inputs, weights))
    labels = torch.rand(num_groups, rows, generator=generator) < chance
    share = torch.where(few > 0, 0.02, 1.0)
    return {"inputs": inputs, "labels": labels.float(), "share": share / share.mean()}


def train(
    upper: Any, groups: dict[str, Tensor], steps: int, constrained: bool
) -> tuple[Tensor, Tensor | None]:
    """Weights after a number of steps on eight groups each, and the price of every constraint."""
    num_groups, _, features = groups["inputs"].shape
    sampled = min(8, num_groups)

    def batches(blocks: Tensor) -> tuple[dict[str, Tensor], None]:
        return {name: leaf[blocks] for name, leaf in groups.items()}, None

    problem = mmb.Problem(upper, None, num_groups, mmb.projections.nonnegative() if constrained else None)
    dual = torch.zeros(num_groups) if constrained else None
    if dual is None:  # a plain loss: stochastic gradient descent
        solver = mmb.Solver(problem, lr=0.5)
        state = solver.init(torch.zeros(features))
    else:
        start = torch.zeros(features)
        solver, state = mmb.auto(problem, start, dual=dual, batches=batches, blocks_per_step=sampled)
    mmb.solve(solver, state, sampler=mmb.BlockSampler(num_groups, sampled), batches=batches, steps=steps)
    return state.x, state.dual


def main(
    num_groups: int = 40, rows: int = 200, features: int = 10, steps: int = 2000, seed: int = 0
) -> dict[str, Any]:
    """Worst and mean log loss of groups, without and with a constraint per group."""
    groups = make_groups(num_groups, rows, features, torch.Generator().manual_seed(seed))
    plain, _ = train(lambda x, dual, lower, group: weighted_loss(x, lower, group), groups, steps, False)
    fair, prices = train(mmb.constrained(weighted_loss, excess, softness=0.05), groups, steps, True)

    def losses(x: Tensor) -> Tensor:
        return torch.vmap(lambda inputs, labels: log_loss(x, None, {"inputs": inputs, "labels": labels}))(
            groups["inputs"], groups["labels"]
        )

    found: dict[str, Any] = {}
    for name, x in {"all rows": plain, "a constraint per group": fair}.items():
        loss = losses(x)
        found[name] = {"worst group": float(loss.max()), "all rows": float((groups["share"] * loss).mean())}
    assert prices is not None
    return {**found, "groups with a price": int((prices > 0).sum())}


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value}")
